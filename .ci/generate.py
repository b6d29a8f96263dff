"""Makes one part of the repository from another: see .ci/generate.

generate.py PART PROGRAM [--check]
"""

import json
import keyword
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "functions/openapi_get/openapi.json"
METHODS = ("get", "put", "post", "delete")
# The order of the groups in the reference, and their titles.
GROUPS = {
    "records": "Records",
    "pushes": "Pushes",
    "branches": "Branches",
    "leases": "Leases",
    "transactions": "Transactions",
    "lifecycle": "Lifecycle",
    "changes": "Changes",
    "fluree": "Fluree's wire",
    "service": "The service",
}


def document():
    return json.loads(DOCUMENT.read_text())


def operations(api):
    for path, item in api["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def target(schema):
    """The name of the schema that is referred to, or None."""
    return schema.get("$ref", "").rpartition("/")[2] or None


# --- openapi ---


def openapi(program):
    text = subprocess.run([program, "generate", "openapi"], check=True, capture_output=True, text=True).stdout
    json.loads(text)
    return {DOCUMENT: text}


# --- graphql ---


def graphql(program):
    text = subprocess.run([program, "generate", "graphql-schema"], check=True, capture_output=True, text=True).stdout
    return {ROOT / "shared/graphql/schema.graphql": text}


# The fields that AppSync answers: lists of rows, each one Query of the table, and with subscriptions the changes.
LISTS = ["recordsByKind", "recordsByState", "recordsBySourceType", "recordsByHolder", "indexDue"]
# AppSync has no custom scalars, and its Int has 32 bits.
SCALARS = {"Long": "Float", "JSON": "AWSJSON"}
# The guarantees of its subscription, and its arguments. There is no start position, since AppSync keeps no changes.
CHANGES = """
Changes as they come: hints, which may be lost, repeated, or out of order. The `position` says what else there is: `GET /v1/changes` has it.
""".strip()
FILTERS = {
    "address": "Only changes of these addresses; each may end with a `*`.",
    "prefix": "Only changes of addresses that begin with this.",
    "kind": "Only changes of records of this kind.",
    "sourceType": "Only changes of graph sources of this type.",
    "concern": "Only changes of these parts of a record.",
}


def appsync(_program):
    """The two schemas of AppSync: of the lists alone, and with what the stream consumer publishes and subscribers get."""
    folder = ROOT / "infra/modules/graphql"
    lists, changes = appsync_schema(False), appsync_schema(True)
    # The mutation that passes a change on, and who may call it.
    for field, directive in [("publishChange", "@aws_iam"), ("changes", '@aws_subscribe(mutations: ["publishChange"])')]:
        changes, count = re.subn(rf"(^  {field}\([^)]*\): Change)$", rf"\1 {directive}", changes, flags=re.M)
        assert count == 1, field
    return {folder / "schema.graphql": lists, folder / "changes.graphql": changes}


def appsync_schema(with_changes):
    import graphql

    schema = graphql.build_schema((ROOT / "shared/graphql/schema.graphql").read_text())
    query, kept = schema.query_type, {}
    query.fields = {name: query.fields[name] for name in LISTS}
    record = schema.type_map["Record"]
    roots = {"query": query}

    def keep(named):
        if graphql.is_specified_scalar_type(named) or named.name in kept:
            return
        kept[named.name] = named
        if isinstance(named, graphql.GraphQLObjectType):
            # A whole record is not in the table.
            named.fields = {
                name: field for name, field in named.fields.items() if graphql.get_named_type(field.type) is not record
            }
            for field in named.fields.values():
                for part in [field, *field.args.values()]:
                    keep(graphql.get_named_type(part.type))

    if with_changes:
        change, subscription = schema.type_map["Change"], schema.subscription_type
        field = subscription.fields["changes"]
        # Nullable, since there is no change while a subscriber waits.
        field.type, field.description = change, CHANGES
        field.args = {name: field.args[name] for name in FILTERS}
        for name, description in FILTERS.items():
            field.args[name].description = description
        members = {name: graphql.GraphQLInputField(field.type) for name, field in change.fields.items()}
        published = graphql.GraphQLInputObjectType("ChangeInput", members, description="A change, as the stream consumer publishes it.")
        publication = graphql.GraphQLField(
            change,
            {"change": graphql.GraphQLArgument(graphql.GraphQLNonNull(published))},
            description="Passes a change on to subscribers. Only the stream consumer may call it.",
        )
        mutation = graphql.GraphQLObjectType("Mutation", {"publishChange": publication})
        kept["ChangeInput"] = published
        roots |= {"mutation": mutation, "subscription": subscription}
    for root in roots.values():
        keep(root)
    for scalar in SCALARS:
        kept.pop(scalar, None)
    text = "\n\n".join(graphql.print_type(named) for _, named in sorted(kept.items()))
    for ours, theirs in SCALARS.items():
        text = re.sub(rf"(:[ \[]*){ours}\b", rf"\1{theirs}", text)
    head = "# Made by .ci/generate from shared/graphql/schema.graphql: do not edit.\n\n"
    named = "\n".join(f"  {kind}: {root.name}" for kind, root in roots.items())
    return f"{head}schema {{\n{named}\n}}\n\n{text}\n"


# --- the HTTP reference ---


def anchor(name):
    """Where the section of a schema is: a group of operations may have its name, and comes first."""
    return name.lower() + ("-1" if name in GROUPS.values() else "")


def type_of(schema):
    """A schema in a few words: its name with a link, or its type."""
    if name := target(schema):
        return f"[{name}](#{anchor(name)})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " \\| ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " \\| ".join(dict.fromkeys(map(type_of, schema[several])))
    if "allOf" in schema:
        return " and ".join(dict.fromkeys(map(type_of, schema["allOf"])))
    kinds = schema.get("type", "any")
    names = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "array":
            names.append(f"list of {type_of(schema.get('items', {}))}")
        elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            names.append(f"map of {type_of(schema['additionalProperties'])}")
        else:
            names.append(kind)
    return " \\| ".join(names)


def limits(schema):
    words = []
    if "default" in schema:
        words.append(f"by default `{json.dumps(schema['default'])}`")
    if "minimum" in schema and schema["minimum"] != 0:
        words.append(f"at least {schema['minimum']}")
    if "maximum" in schema:
        words.append(f"at most {schema['maximum']}")
    if "maxLength" in schema:
        words.append(f"at most {schema['maxLength']} bytes")
    if "pattern" in schema:
        words.append(f"`{schema['pattern']}`".replace("|", "\\|"))
    return ", ".join(words)


def cell(text):
    return re.sub(r"\s+", " ", text or "").strip().replace("|", "\\|")


def description_of(schema):
    text = schema.get("description", "")
    for several in ("oneOf", "anyOf"):
        for option in schema.get(several, []):
            text = text or option.get("description", "")
    more = limits(schema)
    return cell(text) + (f" ({more})" if more else "")


def members(schema):
    """The members of an object: name, schema, whether it is required; those of its parts, too."""
    for part in schema.get("allOf", []):
        yield from members(part)
    required = schema.get("required", [])
    for name, member in schema.get("properties", {}).items():
        yield name, member, name in required


def table_of(schema):
    rows = list(members(schema))
    if not rows:
        return []
    lines = ["| member | type | |", "|---|---|---|"]
    for name, member, required in rows:
        optional = "" if required else " (optional)"
        lines.append(f"| `{name}`{optional} | {type_of(member)} | {description_of(member)} |")
    return [*lines, ""]


def schema_section(name, schema):
    lines = [f"### {name}", ""]
    if text := schema.get("description"):
        lines += [text.strip(), ""]
    lines += table_of(schema)
    for several in ("oneOf", "anyOf"):
        for option in schema.get(several, []):
            if option.get("type") == "object":
                if lines[-1].startswith("- "):
                    lines.append("")
                kind = next((member["enum"][0] for name, member, _ in members(option) if len(member.get("enum", [])) == 1), None)
                label = f"`{json.dumps(kind)}`" if kind else "An object"
                lines += [f"{label}: {cell(option.get('description', ''))}".rstrip(": "), "", *table_of(option)]
            else:
                lines += [f"- {type_of(option)}" + (f": {cell(option['description'])}" if "description" in option else "")]
    if lines[-1].startswith("- "):
        lines.append("")
    if not table_of(schema) and "oneOf" not in schema and "anyOf" not in schema:
        lines += [type_of(schema), ""]
    return lines


def http(_program):
    api = document()
    lines = [
        "# HTTP reference",
        "",
        "<!-- Made by .ci/generate from functions/openapi_get/openapi.json: do not edit. -->",
        "",
        "Every operation and every schema, from the document that the service serves at `/v1/openapi.json`; `/v1/docs` shows the same in a",
        "browser. The [specification](specification.md) has the guarantees across operations; what answers mean is in",
        "[What an answer means](answers.md).",
        "",
    ]
    grouped = {}
    for path, method, operation in operations(api):
        grouped.setdefault(operation["tags"][0], []).append((path, method, operation))
    unknown = set(grouped) - set(GROUPS)
    if unknown:
        sys.exit(f".ci/generate.py: give these tags a place in GROUPS: {unknown}")
    for group, title in GROUPS.items():
        lines += [f"## {title}", ""]
        for path, method, operation in grouped.get(group, []):
            lines += [f"### {operation['operationId']}", "", f"`{method.upper()} {path}`", ""]
            lines += [operation["summary"].rstrip(".") + ".", ""]
            if text := operation.get("description"):
                lines += [text.strip(), ""]
            if operation.get("parameters"):
                lines += ["| parameter | in | type | |", "|---|---|---|---|"]
                for parameter in operation["parameters"]:
                    required = "" if parameter.get("required") else " (optional)"
                    more = limits(parameter["schema"])
                    text = cell(parameter.get("description", "")) + (f" ({more})" if more else "")
                    lines.append(f"| `{parameter['name']}`{required} | {parameter['in']} | {type_of(parameter['schema'])} | {text} |")
                lines.append("")
            if body := operation.get("requestBody"):
                schema = next(iter(body["content"].values()))["schema"]
                optional = "" if body.get("required") else ", optional"
                lines += [f"Body{optional}: {type_of(schema)}.", ""]
            lines += ["| answer | | |", "|---|---|---|"]
            for status, response in sorted(operation["responses"].items()):
                content = response.get("content", {})
                kind = next(iter(content), "")
                schema = content[kind].get("schema", {}) if kind else {}
                shape = "" if kind == "application/problem+json" else type_of(schema) if schema else f"`{kind}`" if kind else ""
                lines.append(f"| {status} | {cell(response.get('description', ''))} | {shape} |")
            lines.append("")
    lines += ["## Schemas", "", "Unknown members of a request are rejected; ignore unknown members of an answer.", ""]
    for name, schema in sorted(api["components"]["schemas"].items()):
        lines += schema_section(name, schema)
    return {ROOT / "docs/http.md": "\n".join(lines).rstrip() + "\n"}


# --- the CLI reference ---


def help_of(program, words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NAMESERVICE_")}
    run = subprocess.run(
        [program, *words, "--help"], check=True, capture_output=True, text=True, env={**environment, "COLUMNS": "100"}
    )
    return run.stdout


def subcommands(text):
    if "\nCommands:\n" not in text:
        return []
    block = text.split("\nCommands:\n")[1].split("\n\n")[0]
    return [name for name in re.findall(r"^  ([a-z][\w-]*)", block, re.M) if name != "help"]


def cli(program):
    root = help_of(program, [])
    shared = root[root.index("Connection options:") : root.index("Exit codes:")].rstrip()
    lines = [
        "# Command line reference",
        "",
        "<!-- Made by .ci/generate from `nameservice … --help`: do not edit. -->",
        "",
        "The help of every command. The [connection options](#connection-options) apply to all of them and are shown once;",
        "[exit codes](operations.md#exit-codes) are in Operations.",
        "",
        "```console",
        root[: root.index("Connection options:")].rstrip(),
        "```",
        "",
        "## Connection options",
        "",
        "```console",
        shared,
        "```",
        "",
    ]

    def describe(words):
        text = help_of(program, words)
        own = "\n".join(line.rstrip() for line in text.replace(shared, "").rstrip().splitlines())
        own = re.sub(r"\n{3,}", "\n\n", own)
        # Every command has these two.
        own = re.sub(r"\n  -h, --help\n +Print help.*\n(\n  -V, --version\n +Print version\n?)?", "\n", own)
        own = re.sub(r"\n+Options:\s*\Z", "", own.rstrip())
        lines.extend([f"{'#' * (len(words) + 1)} nameservice {' '.join(words)}", "", "```console", own.rstrip(), "```", ""])
        for name in subcommands(text):
            describe([*words, name])

    for name in subcommands(root):
        describe([name])
    return {ROOT / "docs/cli.md": "\n".join(lines).rstrip() + "\n"}


# --- the tables of the Terraform module ---


def terraform(_program):
    modules = [ROOT / "infra/modules" / name for name in ("graphql", "nameservice", "read-model")]
    return {module / "README.md": tables_of(module) for module in modules}


def tables_of(module):
    """The README of a module, with its variables and outputs."""
    import hcl2

    def blocks(kind, file):
        with open(module / file) as text:
            for block in hcl2.load(text).get(kind, []):
                for name, body in block.items():
                    yield name.strip('"'), body

    def words(text):
        text = text.strip('"').replace('\\"', '"')
        if heredoc := re.fullmatch(r"<<-?EOT\n(.*)\n\s*EOT", text, re.S):
            lines = [line.strip() for line in heredoc[1].splitlines()]
            text = re.sub(r"(?<!<br>)\n(?!<br>)", " ", "\n".join("<br>" + line if line.startswith("- ") or not line else line for line in lines))
            text = re.sub(r"\s*(<br>\s*)+", "<br>", text)
        return text.replace("|", "\\|")

    def literal(value):
        if value is None:
            return "null"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            return value if value.startswith('"') else f'"{value}"'
        return json.dumps(value)

    variables = sorted(blocks("variable", "variables.tf"))
    lines = ["| input | type | default | |", "|---|---|---|---|"]
    for name, body in variables:
        kind = re.sub(r"^\$\{(.*)\}$", r"\1", body["type"])
        kind = kind.split("(")[0] if kind.startswith("object") else kind
        default = f"`{literal(body['default'])}`" if "default" in body else "required"
        lines.append(f"| `{name}` | `{kind}` | {default} | {words(body['description'])} |")
    inputs = "\n".join(lines)
    lines = ["| output | |", "|---|---|"]
    for name, body in sorted(blocks("output", "outputs.tf")):
        lines.append(f"| `{name}` | {words(body['description'])} |")
    outputs = "\n".join(lines)
    return between(module / "README.md", {"inputs": inputs, "outputs": outputs})


# --- monthly costs ---

DAYS = 30
# Dollars beside the operations: alarms on 100 metrics at most (the module's tests hold them to that), and a dashboard.
IDLE = 100 * 0.10 + 3
# A reader that waits all month: 256 MB of a function at the price in infra/README.md, and one read per second.
GIGABYTE_SECOND, READ_UNIT = 0.0000133334, 0.125 / 1e6
READER = DAYS * 86_400 * (0.25 * GIGABYTE_SECOND + READ_UNIT)
# Name, operations per day by their names in the table of infra/README.md, how changes reach the feed, waiting readers.
PROFILES = [
    ("a team", {"push a head": 10_000, "push an index": 500, "take a lease": 1_000, "read a record": 50_000}, "a single change", 2),
    ("a company", {"push a head": 500_000, "push an index": 20_000, "take a lease": 40_000, "read a record": 2_000_000}, "a single change", 10),
    ("a platform", {"push a head": 8_640_000, "push an index": 200_000, "take a lease": 400_000, "read a record": 43_200_000}, "a change among 21", 50),
]

# The cost of 1,000 readers that wait all month for changes that do not come. List prices of us-east-1: a million requests of an HTTP
# API and of Lambda; a million operations of AppSync Events, real-time updates of its GraphQL, and connection minutes of both; and
# how often their clients reconnect and subscribe again.
IDLE_READERS, MINUTES = 1_000, DAYS * 24 * 60
REQUEST, INVOCATION, OPERATION, UPDATE, CONNECTION_MINUTE = 1.00 / 1e6, 0.20 / 1e6, 1.00 / 1e6, 2.00 / 1e6, 0.08 / 1e6
STREAM_MINUTES, POLL_SECONDS, SOCKET_HOURS = 1.5, 20, 24
# The price per hour of a virtual machine of 2 GiB that runs a replica.
SMALL_MACHINE = 0.0168


def waiting():
    streams = MINUTES / STREAM_MINUTES
    polls = MINUTES * 60 / POLL_SECONDS
    sockets = MINUTES / 60 / SOCKET_HOURS
    rows = [
        ("event streams of Lambda", IDLE_READERS, streams * INVOCATION + READER),
        # Each begins with two reads of the feed.
        ("long polls", IDLE_READERS, polls * (REQUEST + INVOCATION + 2 * READ_UNIT) + READER),
        ("AppSync Events", 0, sockets * 2 * OPERATION + MINUTES * CONNECTION_MINUTE),
        ("subscriptions of AppSync", 0, sockets * 2 * UPDATE + MINUTES * CONNECTION_MINUTE),
    ]
    lines = ["| readers wait by | functions that run all the time | 1,000 readers a month |", "|---|---|---|"]
    lines += [f"| {name} | {functions:,} | ${IDLE_READERS * each:,.0f} |" for name, functions, each in rows]
    replica = SMALL_MACHINE * MINUTES / 60 + streams * INVOCATION + READER
    lines.append(f"| event streams of one [replica](replicas.md) on a small machine | 1 | ${replica:,.0f} |")
    return "\n".join(lines)


# Changes by their names in the same table, by size.
PAYLOADS = ["a single change", "a single status of 16 KB", "a head among 20", *(f"a status of {size} KB among 20" for size in (1.1, 4, 16))]


def costs(_program):
    prices = {}
    for line in (ROOT / "infra/README.md").read_text().splitlines():
        if row := re.fullmatch(r"\| ([^|]+) \| [\d.]+ \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|", line):
            prices[row[1]] = float(row[2])
    lines = [
        "| | heads, indexes, leases, reads a day | waiting readers | writes | changes | reads | readers | alarms | a month |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, daily, change, readers in PROFILES:
        spent = {operation: count * DAYS / 1e6 * prices[operation] for operation, count in daily.items()}
        reads = spent.pop("read a record")
        changes = (sum(daily.values()) - daily["read a record"]) * DAYS / 1e6 * (prices[change] + prices[f"publish {change}"])
        parts = [sum(spent.values()), changes, reads, readers * READER, IDLE]
        counts = ", ".join(f"{count:,}" for count in daily.values())
        shown = " | ".join(f"${part:,.0f}" for part in [*parts, sum(parts)])
        lines.append(f"| {name} | {counts} | {readers} | {shown} |")
    tables = {"costs": "\n".join(lines), "payloads": payloads(prices), "waiting": waiting()}
    return {ROOT / "docs/costs.md": between(ROOT / "docs/costs.md", tables)}


def payloads(prices):
    lines = ["| a million changes, each | in the feed | published |", "|---|---|---|"]
    for change in PAYLOADS:
        lines.append(f"| {change} | ${prices[change]:.2f} | ${prices[f'publish {change}']:.2f} |")
    return "\n".join(lines)


def between(path, tables):
    """The text of a page with these tables between their marks."""
    text = path.read_text()
    for name, table in tables.items():
        marked = re.compile(rf"(<!-- {name}: made by .ci/generate -->\n).*?(<!-- end of {name} -->)", re.S)
        if not marked.search(text):
            sys.exit(f"{path} has no place for {name}")
        text = marked.sub(lambda m: f"{m[1]}\n{table}\n\n{m[2]}", text)
    return text


# --- the clients ---


def typescript(_program):
    folder = ROOT / "clients/typescript"
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "schema.ts"
        command = [folder / "node_modules/.bin/openapi-typescript", DOCUMENT, "--empty-objects-unknown", "--output", out]
        subprocess.run(command, check=True, capture_output=True)
        return {folder / "src/schema.ts": out.read_text()}


def titled(api):
    """Gives the alternatives of a union the name of what distinguishes them, so that the models have no numbers for names."""
    api = json.loads(json.dumps(api))
    for name, schema in api["components"]["schemas"].items():
        for option in schema.get("oneOf", []):
            for _, member, _ in members(option):
                if len(member.get("enum", [])) == 1:
                    word = "".join(part.title() for part in re.split(r"[^a-zA-Z]", member["enum"][0]))
                    option["title"] = word if name == "Operation" else f"{name}{word}"
                    break
    return api


HEADER = '"""{}\n\nMade by .ci/generate from the service\'s OpenAPI document: do not edit.\n"""\n\n'
# Operations that are no JSON: pages for browsers, and the event streams, which client.py follows.
BY_HAND = {"console_get", "console_file_get", "docs_get", "change_stream", "fluree_event_stream"}


def python(_program):
    api = titled(document())
    package = ROOT / "clients/python/src/nameservice_client"
    tools = pathlib.Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as scratch:
        given, made = pathlib.Path(scratch) / "openapi.json", pathlib.Path(scratch) / "models.py"
        given.write_text(json.dumps(api))
        command = [tools / "datamodel-codegen", "--input", given, "--input-file-type", "openapi", "--output", made]
        command += ["--output-model-type", "typing.TypedDict", "--target-python-version", "3.10", "--use-union-operator"]
        command += ["--use-schema-description", "--use-field-description", "--use-standard-collections", "--use-title-as-name"]
        command += ["--enum-field-as-literal", "all", "--collapse-root-models", "--keep-model-order", "--disable-timestamp"]
        command += ["--disable-warnings", "--formatters", "builtin"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            sys.exit(run.stderr)
        models = made.read_text()
    models = re.sub(r"\A(#.*\n)+\n", HEADER.format("The values of the wire, as dictionaries with types."), models)
    # A keyword of typing_extensions that not all type checkers know.
    models = models.replace(", closed=True", "")
    names = set(re.findall(r"^class (\w+)\(", models, re.M)) | set(re.findall(r"^(\w+): TypeAlias", models, re.M))
    files = {package / "models.py": models, package / "operations.py": python_operations(api, names)}
    return {path: formatted(tools, text) for path, text in files.items()}


def formatted(tools, text):
    run = subprocess.run(
        [tools / "ruff", "format", "--line-length", "128", "-"], input=text, capture_output=True, text=True, check=True
    )
    return run.stdout


def python_type(schema, names):
    if name := target(schema):
        plain = name.replace("_", "")
        if plain not in names:
            sys.exit(f"the models lack {name}")
        return f"models.{plain}"
    kinds = schema.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    simple = {"string": "str", "integer": "int", "boolean": "bool", "number": "float", "object": "dict[str, Any]"}
    if kinds == ["array"]:
        return f"Sequence[{python_type(schema['items'], names)}]"
    if "enum" in schema:
        return "Literal[" + ", ".join(map(repr, schema["enum"])) + "]"
    return " | ".join(simple[kind] for kind in kinds)


def python_operations(api, names):
    lines = [
        HEADER.format("One method for each operation of the service."),
        "from __future__ import annotations\n\nfrom collections.abc import Mapping, Sequence\nfrom typing import Any, Literal\n\n",
        "from . import models\n\n\nclass Operations:\n",
        '    """The operations, by name. A rejection raises `NameserviceError`; see `client.py`."""\n\n',
        "    def _call(self, method: str, path: str, address: str | None, query: Mapping[str, Any],\n",
        "              headers: Mapping[str, Any], body: Any) -> Any:\n        raise NotImplementedError\n",
    ]
    for path, method, operation in operations(api):
        name = operation["operationId"]
        if name in BY_HAND:
            continue
        positional, keyword_only, query, headers = [], [], [], []
        for parameter in operation.get("parameters", []):
            wire = parameter["name"]
            local = re.sub(r"\W", "_", wire).lower()
            local = local + "_" if keyword.iskeyword(local) else local
            kind = python_type(parameter["schema"], names)
            if parameter["in"] == "path":
                positional.append(f"{local}: {kind}")
                continue
            (headers if parameter["in"] == "header" else query).append(f"{wire!r}: {local}")
            keyword_only.append(f"{local}: {kind}" if parameter.get("required") else f"{local}: {kind} | None = None")
        body = "None"
        if given := operation.get("requestBody"):
            kind = python_type(next(iter(given["content"].values()))["schema"], names)
            positional.append(f"body: {kind}" if given.get("required") else f"body: {kind} | None = None")
            body = "body"
        answers = [response for status, response in sorted(operation["responses"].items()) if status in ("200", "201")]
        schema = answers[0].get("content", {}).get("application/json", {}).get("schema") if answers else None
        returns = python_type(schema, names) if schema else "dict[str, Any]" if answers else "None"
        if "304" in operation["responses"] and schema:
            returns += " | None"
        arguments = ", ".join(["self", *positional, *(["*", *keyword_only] if keyword_only else [])])
        text = operation["summary"].rstrip(".") + "."
        if more := operation.get("description"):
            text += "\n\n" + more.strip()
        if "304" in operation["responses"] and schema:
            text += "\n\nReturns None if a tag in `if_none_match` is still current."
        text = text.replace("\\", "\\\\").replace("\n", "\n        ").replace("        \n", "\n")
        where = "address" if "{address}" in path else "None"
        lines.append(f'\n    def {name}({arguments}) -> {returns}:\n        """{text}\n        """\n')
        call = f"self._call({method.upper()!r}, {path!r}, {where}, {{{', '.join(query)}}}, {{{', '.join(headers)}}}, {body})"
        lines.append(f"        {call}\n" if returns == "None" else f"        answer: {returns} = {call}\n        return answer\n")
    return "".join(lines)


PARTS = {"openapi": openapi, "graphql": graphql, "appsync": appsync, "http": http, "cli": cli, "terraform": terraform, "costs": costs, "typescript": typescript, "python": python}


def main():
    part, program, *rest = sys.argv[1:]
    outdated = []
    for path, text in PARTS[part](str(pathlib.Path(program).resolve())).items():
        if path.exists() and path.read_text() == text:
            continue
        if rest == ["--check"]:
            outdated.append(str(path.relative_to(ROOT)))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    if outdated:
        sys.exit(f"not current: {' '.join(outdated)}; run .ci/generate {part}")


main()
