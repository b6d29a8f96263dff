"""Runs a command with a provider "hashicorp/aws" that has the schema of the real one and nothing else.

    python3 provider.py PACKAGE -- terraform validate

PACKAGE is an unpacked copy of the npm package @cdktn/provider-aws, which is generated from the schema of the provider
release that its README names. The schema is read from its JavaScript, for the resources and data sources that infra/ uses: names,
types, nesting, and what is required. That is enough for `terraform validate`, and for `terraform test` with `mock_provider`.
The provider's own checks of values are not part of a schema and are not made.
"""

import concurrent.futures
import ctypes
import errno
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import grpc
from tf.gen import grpc_controller_pb2 as controller
from tf.gen import grpc_controller_pb2_grpc as controller_rpc
from tf.gen import grpc_stdio_pb2_grpc as stdio_rpc
from tf.gen import tfplugin_pb2 as pb
from tf.gen import tfplugin_pb2_grpc as rpc

INFRA = pathlib.Path(__file__).resolve().parent.parent.parent / "infra"

FLAGS = re.compile(r"// (\w+) - computed: (true|false), optional: (true|false), required: (true|false)")
CLASS = re.compile(r"^class (\w+) extends .*?^exports\.\1 = \1;", re.S | re.M)
# One argument of a resource or of a block, as the package writes it out in HCL.
ARGUMENT = re.compile(
    r'^ +(\w+): \{\s+value: .*?,\s+isBlock: (true|false),\s+type: "(\w+)",\s+storageClassType: "(\w+)",\s+\}', re.S | re.M
)
# A computed attribute has a getter and no argument.
GETTER = re.compile(r"return (?:cdktn\.Fn\.tolist\()?this\.get(String|Number|Boolean|List|StringMap)Attribute\('(\w+)'\)")
# A map that is computed and nothing else is a member of its own.
COMPUTED_MAP = re.compile(r'_\w+ = new cdktn\.(StringMap)\(this, "(\w+)"\)')
PRIMITIVES = {"string": "string", "number": "number", "boolean": "bool", "any": "dynamic"}
GETTERS = {"String": "string", "Number": "number", "Boolean": "bool", "List": ["list", "string"], "StringMap": ["map", "string"]}


def type_of(kind, storage):
    """The type of an attribute in Terraform's JSON notation; None if the package does not spell it out."""
    if kind == "simple":
        return PRIMITIVES.get(storage)
    element = re.fullmatch(r"(string|number|boolean)(?:List|Map|Set)", storage)
    return [kind, PRIMITIVES[element[1]]] if element and kind in ("list", "set", "map") else None


class Package:
    """One file of the package: the classes of a resource and of its blocks."""

    def __init__(self, path):
        text = path.read_text().split("//# sourceMappingURL")[0]
        self.classes = {match[1]: match[0] for match in CLASS.finditer(text)}
        self.text = text

    def block(self, name, arguments):
        # The provider's own blocks have no class: everything in them is optional.
        body = self.classes.get(name, "")
        flags = {f[1]: (f[2] == "true", f[3] == "true", f[4] == "true") for f in FLAGS.finditer(body)}
        block = pb.Schema.Block()
        seen = set()
        for argument, is_block, kind, storage in ARGUMENT.findall(arguments):
            computed, optional, required = flags.get(argument, (False, True, False))
            seen.add(argument)
            if is_block == "true":
                block.block_types.append(self.nested(argument, kind, storage, body, required))
            elif (type_ := type_of(kind, storage)) is not None:
                block.attributes.append(attribute(argument, type_, computed, optional, required))
        for getter, argument in [*GETTER.findall(body), *COMPUTED_MAP.findall(body)]:
            if argument not in seen and argument in flags:
                seen.add(argument)
                block.attributes.append(attribute(argument, GETTERS[getter], *flags[argument]))
        return block

    def nested(self, argument, kind, storage, body, required):
        name = storage.removesuffix("List")
        function = name[0].lower() + name[1:] + "ToHclTerraform"
        start = self.text.index(f"function {function}(")
        block = self.block(name + "OutputReference", self.text[start : self.text.index("\n}\n", start)])
        modes = pb.Schema.NestedBlock.NestingMode
        mode = {"list": modes.LIST, "set": modes.SET, "struct": modes.SINGLE}[kind]
        nested = pb.Schema.NestedBlock(type_name=argument, block=block, nesting=mode)
        if mode != modes.SINGLE:
            nested.min_items = int(required)
            nested.max_items = int(f'new {name}OutputReference(this, "{argument}")' in body)
        return nested

    def schema(self, name):
        body = self.classes[name]
        return pb.Schema(block=self.block(name, body[body.index("synthesizeHclAttributes()") :]))


def attribute(name, type_, computed, optional, required):
    # The provider sets `id`; arguments of that name exist in the package's type system only.
    return pb.Schema.Attribute(
        name=name,
        type=json.dumps(type_).encode(),
        computed=computed,
        optional=optional and name != "id",
        required=required,
    )


def resource(package, name, kind=""):
    folder = package / "lib" / (kind + name.removeprefix("aws_").replace("_", "-"))
    file = Package(folder / "index.js")
    return file.schema(next(c for c, body in file.classes.items() if f'tfResourceType = "{name}"' in body))


class Provider(rpc.ProviderServicer):
    def __init__(self, package):
        texts = [file.read_text() for file in INFRA.rglob("*.tf")]
        used = lambda kind: sorted({name for text in texts for name in re.findall(rf'^{kind} "(aws_\w+)"', text, re.M)})
        provider = Package(package / "lib" / "provider" / "index.js")
        self.schema = pb.GetProviderSchema.Response(
            provider=provider.schema("AwsProvider"),
            resource_schemas={name: resource(package, name) for name in used("resource")},
            data_source_schemas={name: resource(package, name, "data-aws-") for name in used("data")},
        )

    def GetProviderSchema(self, request, context):
        return self.schema

    def ValidateProviderConfig(self, request, context):
        return pb.ValidateProviderConfig.Response()

    def ValidateResourceConfig(self, request, context):
        return pb.ValidateResourceConfig.Response()

    def ValidateDataResourceConfig(self, request, context):
        return pb.ValidateDataResourceConfig.Response()

    def ConfigureProvider(self, request, context):
        return pb.ConfigureProvider.Response()

    def StopProvider(self, request, context):
        return pb.StopProvider.Response()


class Controller(controller_rpc.GRPCControllerServicer):
    def Shutdown(self, request, context):
        return controller.Empty()


class Stdio(stdio_rpc.GRPCStdioServicer):
    def StreamStdio(self, request, context):
        return iter([])


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction))]


def without_process_handles():
    """Takes pidfd_open from this process and those that it starts: Linux answers ENOSYS, and Go uses process ids.

    Terraform asks every second, for each use of a provider that it did not start, whether the provider's process lives, and leaves the
    handle to the garbage collector (findings/terraform-handles-of-reattached-providers.sh). A busy machine has thousands at the same time,
    and once the process may open no more files the run fails.
    """
    if sys.platform != "linux":
        return
    load_number, if_equal, answer = 0x20, 0x15, 0x06
    pidfd_open, error, allow = 434, 0x00050000, 0x7FFF0000
    instructions = (Instruction * 4)(
        (load_number, 0, 0, 0), (if_equal, 0, 1, pidfd_open), (answer, 0, 0, error | errno.ENOSYS), (answer, 0, 0, allow)
    )
    set_no_new_privileges, set_seccomp, with_filter = 38, 22, 2
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    program = Program(len(instructions), instructions)
    if prctl(set_no_new_privileges, 1, 0, 0, 0) or prctl(set_seccomp, with_filter, ctypes.byref(program), 0, 0):
        print("pidfd_open stays:", os.strerror(ctypes.get_errno()), file=sys.stderr)


def main():
    package, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        sys.exit(__doc__)
    without_process_handles()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    rpc.add_ProviderServicer_to_server(Provider(pathlib.Path(package)), server)
    controller_rpc.add_GRPCControllerServicer_to_server(Controller(), server)
    stdio_rpc.add_GRPCStdioServicer_to_server(Stdio(), server)
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/provider.sock"
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        address = {"Network": "unix", "String": socket}
        reattach = {"Protocol": "grpc", "ProtocolVersion": 6, "Pid": os.getpid(), "Test": True, "Addr": address}
        providers = json.dumps({"registry.terraform.io/hashicorp/aws": reattach})
        code = subprocess.call(command, env={**os.environ, "TF_REATTACH_PROVIDERS": providers})
        server.stop(grace=None)
    sys.exit(code)


if __name__ == "__main__":
    main()
