#!/usr/bin/env bash
# Terraform 1.11.4 opens a handle of the provider's process (pidfd) each second, for each use of a provider that ran already, and closes none.
#
# `terraform test` attaches to such a provider by TF_REATTACH_PROVIDERS with "Test": true, as tests of providers do. Every use of it in a run
# asks once a second whether its process lives, also long after the run is over, and the handles stay until the garbage collector finds
# them. So their number grows with runs and with time: a module with 76 runs had more than 9,000 open at the same time. Where a process may open
# 4,096 files, a busy machine fails in the middle of such tests, and a fast one does not. One handle, or none, would be a good guess.
#
# Here a provider answers after two seconds, and ten runs plan with it. Without a collector (GOGC=off) no chance is in the count.
#
# Output:
#   handles of processes that one `terraform test` of ten runs had open: 0 at first, 260 at most
#
# Needs Terraform 1.11.4, Python 3.10 or newer, Linux 5.4 or newer, and a network. Takes 40 seconds. Fails if the behaviour has changed.
set -euo pipefail
version=$(terraform version -json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["terraform_version"])')
[ "$version" = 1.11.4 ] || { echo "terraform is $version, not 1.11.4" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/python"
"$folder/python/bin/pip" install --quiet --disable-pip-version-check tf==1.2.0
mkdir -p "$folder/module/tests"
cat >"$folder/module/main.tf" <<'TF'
terraform {
  required_providers {
    slow = { source = "example/slow" }
  }
}
data "slow_thing" "this" {
  name = "a"
}
TF
for n in 1 2 3 4 5 6 7 8 9 10; do printf 'run "r%s" {\n  command = plan\n}\n' "$n"; done >"$folder/module/tests/ten.tftest.hcl"
cat >"$folder/run.py" <<'PY'
import concurrent.futures, glob, json, os, subprocess, sys, time
import grpc
from tf.gen import grpc_controller_pb2 as controller, grpc_controller_pb2_grpc as controller_rpc
from tf.gen import grpc_stdio_pb2_grpc as stdio_rpc, tfplugin_pb2 as pb, tfplugin_pb2_grpc as rpc


class Slow(rpc.ProviderServicer):
    def GetProviderSchema(self, request, context):
        name = pb.Schema.Attribute(name="name", type=b'"string"', required=True)
        block = lambda *attributes: pb.Schema(block=pb.Schema.Block(attributes=attributes))
        return pb.GetProviderSchema.Response(provider=block(), data_source_schemas={"slow_thing": block(name)})

    def ValidateProviderConfig(self, request, context):
        return pb.ValidateProviderConfig.Response()

    def ValidateDataResourceConfig(self, request, context):
        return pb.ValidateDataResourceConfig.Response()

    def ConfigureProvider(self, request, context):
        return pb.ConfigureProvider.Response()

    def StopProvider(self, request, context):
        return pb.StopProvider.Response()

    def ReadDataSource(self, request, context):
        time.sleep(2)
        return pb.ReadDataSource.Response(state=request.config)


class Controller(controller_rpc.GRPCControllerServicer):
    def Shutdown(self, request, context):
        return controller.Empty()


class Stdio(stdio_rpc.GRPCStdioServicer):
    def StreamStdio(self, request, context):
        return iter([])


folder = sys.argv[1]
server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
rpc.add_ProviderServicer_to_server(Slow(), server)
controller_rpc.add_GRPCControllerServicer_to_server(Controller(), server)
stdio_rpc.add_GRPCStdioServicer_to_server(Stdio(), server)
server.add_insecure_port(f"unix://{folder}/socket")
server.start()
address = {"Network": "unix", "String": f"{folder}/socket"}
provider = {"Protocol": "grpc", "ProtocolVersion": 6, "Pid": os.getpid(), "Test": True, "Addr": address}
os.environ |= {"TF_REATTACH_PROVIDERS": json.dumps({"registry.terraform.io/example/slow": provider}), "GOGC": "off", "CHECKPOINT_DISABLE": "1"}
terraform = ["terraform", f"-chdir={folder}/module"]
subprocess.run([*terraform, "init", "-no-color"], check=True, stdout=subprocess.DEVNULL)
testing = subprocess.Popen([*terraform, "test", "-no-color"], stdout=subprocess.DEVNULL)
counts = []
while testing.poll() is None:
    handles = 0
    for file in glob.glob(f"/proc/{testing.pid}/fd/*"):
        try:
            handles += "pidfd" in os.readlink(file)
        except FileNotFoundError:
            pass
    counts.append(handles)
    time.sleep(0.2)
assert testing.returncode == 0, testing.returncode
print(f"handles of processes that one `terraform test` of ten runs had open: {counts[0]} at first, {max(counts)} at most")
assert counts[0] < 10 and max(counts) >= 100, "this has changed"
PY
"$folder/python/bin/python" "$folder/run.py" "$folder"
