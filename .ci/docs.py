"""Checks that the documentation is true, as far as a program can.

    docs.py PROGRAM           PROGRAM is the built `nameservice`
    docs.py PROGRAM PAGE…     only runs the commands of these pages

- Links lead to files and headings that exist; every page of docs/ is in its summary.
- Commands run: each `sh` block of the README and of docs/ runs, in order, against a service of the page's own, and a page that continues
  another (CONTINUED) runs once more after that one, against its service. What follows a block as
  `json` or `text` is what its last commands print, with `…` for anything. `<!-- exit: N -->` before a block is the exit
  code it ends with; `<!-- not run: why -->` keeps a block from running (in the pages of WHOLE, only one that is listed there).
  `<!-- file: NAME -->` before a block of any language saves it in the folder where the commands run. `<!-- needs: NAME -->` keeps a
  block from running where DOCS_HAS does not name it; if it names self-hosted, as .ci/self-hosted.py does, the folder is a checkout.
  A block begins in the directory in which the one before it ended.
  A page may use 127.0.0.1:8080, a service in memory, 127.0.0.1:8181, which is free, and 127.0.0.1:5000, the emulator of AWS at DOCS_AWS.
- Rust is part of an example that the library tests.
- Subcommands and options of `nameservice`, aliases of cargo, paths, variables and routes that are named anywhere exist.
"""

import contextlib
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_URL = "http://127.0.0.1:8080"
FENCE = re.compile(r"^(\s*)```(\w*)")
NOTE = re.compile(r"^\s*<!-- (not run|exit|file|needs): (.*) -->$")
# How long a service may take to start, or a block to run, on a busy machine.
LONG = 240
HAS = set(os.environ.get("DOCS_HAS", "").split(","))
# Pages of which every block is run, in their order, here or where a step has what it needs. The first lines of those that cannot be, and why.
WHOLE = {
    "docs/production.md": {
        "export NAMESERVICE_TOKEN=$(nameservice login --issuer https://id.example.com --client-id nameservice-cli)":
            "nobody confirms the code in a browser: cli/tests/commands/production.rs runs it with a provider that does",
    },
}
# What a reader runs next, with the records of the page before in place. It is also read by itself.
CONTINUED = {"README.md": "docs/quick-start.md"}
OWN_PATH = re.compile(r"^(?:shared|functions|cli|infra|events|tests|docs|\.ci|\.cargo)/[\w./*-]*$")

problems = []


def wrong(page, what):
    problems.append(f"{page.relative_to(ROOT)}: {what}")


class Block:
    def __init__(self, language, line, notes):
        self.language, self.line, self.lines = language, line, []
        self.is_left_out, self.needs = "not run" in notes, notes.get("needs")
        self.is_run = language == "sh" and not self.is_left_out and (self.needs is None or self.needs in HAS)
        self.file = notes.get("file")
        self.exit = int(notes.get("exit", 0))

    @property
    def text(self):
        return "\n".join(self.lines)


class Page:
    """A Markdown file: its text without code blocks, and the code blocks."""

    def __init__(self, path):
        self.path, self.prose, self.blocks = path, [], []
        notes, block, indent = {}, None, ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fence = FENCE.match(line)
            if block is not None:
                if fence and not fence[2]:
                    self.blocks.append(block)
                    block = None
                else:
                    block.lines.append(line.removeprefix(indent))
            elif fence:
                indent, block, notes = fence[1], Block(fence[2], number, notes), {}
            else:
                if found := NOTE.match(line):
                    notes[found[1]] = found[2]
                elif line.strip():
                    notes = {}
                self.prose.append(line)

    def anchors(self):
        seen = {}
        for line in self.prose:
            if heading := re.match(r"#+ (.*)", line):
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
                slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
                seen[slug] = seen.get(slug, 0) + 1
                yield slug if seen[slug] == 1 else f"{slug}-{seen[slug] - 1}"

    def spans(self):
        return re.findall(r"`([^`]+)`", "\n".join(self.prose))


def check_links(pages):
    for page in pages.values():
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", "\n".join(page.prose))):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            to = (page.path.parent / file).resolve() if file else page.path
            if not to.exists():
                wrong(page.path, f"the link {target} leads nowhere")
            elif anchor and anchor not in pages.get(to, Page(to)).anchors():
                wrong(page.path, f"the link {target} leads to no heading")
            elif ROOT / "docs" in page.path.parents and ROOT / "docs" not in to.parents:
                wrong(page.path, f"the link {target} leads out of the book: name the file instead")
    summary = ROOT / "docs/SUMMARY.md"
    listed = {(summary.parent / file).resolve() for file in re.findall(r"\(([^)]*\.md)\)", summary.read_text())}
    for path in pages:
        if ROOT / "docs" in path.parents and path != summary and path not in listed:
            wrong(path, "is not in docs/SUMMARY.md")


def command_lines(page):
    """Command lines of the program, from blocks and from the text."""
    for block in page.blocks:
        if block.language == "sh":
            yield from block.text.replace("\\\n", " ").splitlines()
    yield from page.spans()


def check_commands(pages, program):
    helps = {}

    def help_of(words):
        if words not in helps:
            run = subprocess.run([program, *words, "--help"], capture_output=True, text=True)
            helps[words] = run.stdout if run.returncode == 0 else None
        return helps[words]

    commands = set(re.findall(r"^  ([a-z][\w-]*)", help_of(()).split("Commands:")[1].split("\n\n")[0], re.M))
    aliases = set(re.findall(r"^([\w-]+) = ", (ROOT / ".cargo/config.toml").read_text(), re.M))
    known = {"build", "test", "run", "install", "lambda", "check", "clippy", "fmt", "doc", "bench", "package", "deny",
             "mutants", "publish"}
    for page in pages.values():
        for line in command_lines(page):
            line = line.replace("cargo run -q -p nameservice-cli --", "nameservice")
            line = line.replace("cargo run -p nameservice-cli --", "nameservice").strip()
            if cargo := re.match(r"cargo ([a-z-]+)", line):
                if cargo[1] not in known | aliases:
                    wrong(page.path, f"`{line}`: cargo has no such command here")
            if not line.startswith("nameservice "):
                continue
            try:
                words = shlex.split(line.split(" -- ")[0], comments=True)[1:]
            except ValueError:
                words = line.split()[1:]
            if not words or words[0].startswith("-") or words[0] not in commands:
                if words and not re.match(r"[<\[…-]", words[0]):
                    wrong(page.path, f"`{line}`: there is no such command")
                continue
            path, text = (words[0],), help_of((words[0],))
            for word in words[1:]:
                if "Commands:" not in text or not (deeper := help_of((*path, word))):
                    break
                path, text = (*path, word), deeper
            for option in (word.split("=")[0] for word in words if word.startswith("--")):
                if option not in re.findall(r"--[\w-]+", text):
                    wrong(page.path, f"`{line}`: `{' '.join(path)}` has no option {option}")


def check_names(pages):
    sources = "\n".join(
        pathlib.Path(path).read_text()
        for pattern in ("shared/**/*.rs", "functions/**/*.rs", "cli/**/*.rs", "tests/**/*.rs", "infra/**/*.tf", "infra/self-hosted/**/*", ".ci/*")
        for path in glob.glob(str(ROOT / pattern), recursive=True)
        if os.path.isfile(path) and "/target/" not in path
    )
    for page in pages.values():
        for span in page.spans():
            if OWN_PATH.match(span) and not glob.glob(str(ROOT / span)) and "*" not in span:
                wrong(page.path, f"there is no {span}")
        for variable in set(re.findall(r"\bNAMESERVICE_[A-Z_]+[A-Z]", page.path.read_text())):
            if variable not in sources and variable.removeprefix("NAMESERVICE_") not in sources:
                wrong(page.path, f"no source reads the variable {variable}")
    for name in ("answers", "operations", "specification"):
        page = pages[ROOT / f"docs/{name}.md"]
        for word in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", "\n".join(line for line in page.prose if "|" in line)):
            if f'"{word}"' not in sources:
                wrong(page.path, f"{word} does not occur in the sources")
    specification = pages[ROOT / "docs/specification.md"]
    kinds = re.findall(r'^\s+[A-Z]\w+\s+"([a-z-]+)"\s+(\d{3})\s+"', sources, re.M)
    if len(kinds) < 20:
        wrong(specification.path, "the table of problems was not found in the sources")
    for slug, status in kinds:
        if not any(line.startswith(f"| {status} |") and f"`{slug}`" in line for line in specification.prose):
            wrong(specification.path, f"does not have the problem {slug} with status {status}")
    codes = re.findall(r': &str = "([a-z]+(?:-[a-z]+)+)"', (ROOT / "shared/store/src/doctor/diagnosis.rs").read_text())
    codes += re.findall(r'^    \("([a-z]+(?:-[a-z]+)+)", "', (ROOT / "shared/embedded/src/doctor/mod.rs").read_text(), re.M)
    for code in codes:
        if code not in pages[ROOT / "docs/operations.md"].spans():
            wrong(ROOT / "docs/operations.md", f"does not have the finding {code}")


def check_whole(pages):
    """Every block of the pages in WHOLE is run, is compared with what the one before it prints, or is listed."""
    for name, listed in WHOLE.items():
        page = pages[ROOT / name]
        left_out = {block.lines[0] for block in page.blocks if block.is_left_out}
        for line in left_out - set(listed):
            wrong(page.path, f"`{line}` is not run, and WHOLE of .ci/docs.py has no reason for that")
        for line in set(listed) - left_out:
            wrong(page.path, f"WHOLE of .ci/docs.py lists `{line}`, which is no block that is not run")
        for block in page.blocks:
            if block.needs not in (None, "self-hosted"):
                wrong(page.path, f"no step runs the block in line {block.line}, which needs {block.needs}")
            if block.language not in ("sh", "json", "text") and not block.file:
                wrong(page.path, f"the block in line {block.line} is neither run nor a file: its language is {block.language or 'missing'}")


def check_rust(pages):
    """Rust in the pages is an example that the library's own documentation tests."""
    sources = sorted((ROOT / "shared/nameservice/src").glob("*.rs"))
    lines = [line.strip() for file in sources for line in file.read_text().splitlines()]
    tested = [re.sub(r"^//[!/] ?", "", line) for line in lines if re.match(r"//[!/](?! # )", line)]
    for page in pages.values():
        for block in page.blocks:
            if block.language == "rust" and block.text not in "\n".join(tested):
                wrong(page.path, f"the Rust in line {block.line} is in no example of shared/nameservice/src")


def check_routes(pages, url):
    """The routes of the specification are those of the service."""
    page = pages[ROOT / "docs/specification.md"]
    document = json.load(urllib.request.urlopen(f"{url}/v1/openapi.json"))
    shape = lambda route: re.sub(r"\{[^}]*\}", "{}", route)
    served = {
        shape(f"{method.upper()} {path}")
        for path, item in document["paths"].items()
        for method in item
        if method in ("get", "put", "post", "delete")
    }
    named = {shape(re.sub(r"\?.*", "", span)) for span in page.spans() if re.match(r"(GET|PUT|POST|DELETE) /", span)}
    named = {re.sub(r"/(commit|index|init)$", "", route) if "refs" in route else route for route in named}
    for route in sorted(served - named):
        wrong(page.path, f"does not have the route {route}")
    # Routes that only `serve` has are not in the document.
    others = {"GET /v1/docs", "GET /v1/openapi.json", "GET /graphiql", "GET /graphql", "POST /graphql"}
    for route in sorted(named - served - others):
        wrong(page.path, f"there is no route {route}")


def check_out(folder):
    """Copies the files of the repository as they are."""
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True, cwd=ROOT
    ).stdout.decode().split("\0")
    for file in filter(os.path.isfile, (ROOT / file for file in files if file)):
        to = folder / file.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to, follow_symlinks=False)


class Service:
    """`nameservice serve --memory` on a port of its own, and a folder where `nameservice` is a command."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory()
        if "self-hosted" in HAS:
            check_out(pathlib.Path(self.folder.name))
        # Not in the folder of the page.
        self.own_folder = tempfile.TemporaryDirectory()
        os.symlink(program, f"{self.own_folder.name}/nameservice")
        # Where the next block begins.
        self.directory = pathlib.Path(self.own_folder.name, "directory")
        self.directory.write_text(self.folder.name)
        # The variables that blocks have set.
        self.settings, self.names = pathlib.Path(self.own_folder.name, "settings"), set()
        self.settings.touch()
        # The others are for services that a page starts.
        port, *others = (free_port() for _ in range(4))
        self.ports = dict(zip(("localhost:8443", "127.0.0.1:8181", "127.0.0.1:9180"), others))
        self.groups = []
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(f"{self.own_folder.name}/log", "w")
        self.process = subprocess.Popen(
            [program, "serve", "--memory", "--listen", f"127.0.0.1:{port}"], stdout=self.log, stderr=self.log
        )

    def __enter__(self):
        end = time.monotonic() + LONG
        while self.process.poll() is None and time.monotonic() < end:
            try:
                urllib.request.urlopen(f"{self.url}/v1/health").close()
                return self
            except OSError:
                time.sleep(0.1)
        sys.exit("the service did not start: " + pathlib.Path(self.log.name).read_text())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.folder.cleanup()
        self.own_folder.cleanup()

    def own(self, text):
        """Replaces the addresses that pages use."""
        text = text.replace(DEFAULT_URL, self.url)
        for address, port in self.ports.items():
            text = text.replace(address, f"{address.split(':')[0]}:{port}")
        return text.replace("http://127.0.0.1:5000", os.environ.get("DOCS_AWS", "http://127.0.0.1:5000"))

    def run(self, script):
        environment = {**os.environ, "NAMESERVICE_URL": self.url, "PATH": f"{self.own_folder.name}:{os.environ['PATH']}"}
        self.names |= set(re.findall(r"^(?:export )?([A-Z_]+)=\S+$", script, re.M))
        # A reader still has them in the next block, as they were.
        kept = f"declare -p {' '.join(sorted(self.names))} >{self.settings} 2>/dev/null || true" if self.names else ":"
        script = f". {self.settings}\ntrap 'pwd >{self.directory}; {kept}' EXIT\n{self.own(script)}"
        # In a group of its own: what it starts in the background ends with the page.
        block = subprocess.Popen(
            ["timeout", str(LONG), "bash", "-euo", "pipefail", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=self.directory.read_text().strip(),
            start_new_session=True,
        )
        self.groups.append(block.pid)
        stdout, stderr = block.communicate()
        return subprocess.CompletedProcess(block.args, block.returncode, stdout, stderr)


def fits(shown, printed):
    """`…` is any text; members and spaces between tokens of JSON are as they come."""
    if isinstance(shown, str) and isinstance(printed, str):
        return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed, re.S) is not None
    if isinstance(shown, dict) and isinstance(printed, dict):
        return all(name in printed and fits(value, printed[name]) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(printed, list):
        return len(shown) == len(printed) and all(map(fits, shown, printed))
    return shown == printed


def run_page(page, program, pages):
    """Runs a page, and the one that continues it, against one service. Returns how many blocks were run."""
    is_guide = page.path == ROOT / "README.md" or ROOT / "docs" in page.path.parents
    if not is_guide or not any(block.is_run and not block.file for block in page.blocks):
        return 0
    name = str(page.path.relative_to(ROOT))
    with Service(program) as service:
        run = run_blocks(page, service)
        if name in CONTINUED:
            run += run_blocks(pages[ROOT / CONTINUED[name]], service, f", after {name},")
    return run


def run_blocks(page, service, after=""):
    is_whole = str(page.path.relative_to(ROOT)) in WHOLE
    run = 0
    previous, has_printed = None, False
    for block in page.blocks:
        where = f"the block in line {block.line}{after}"
        if block.file:
            pathlib.Path(service.folder.name, block.file).write_text(service.own(block.text) + "\n")
            continue
        if block.language == "sh":
            has_printed = True
        elif is_whole and not has_printed:
            wrong(page.path, f"{where} does not follow what prints it")
        if block.is_run:
            run += 1
            done = service.run(block.text)
            previous = done.stdout
            if done.returncode != block.exit:
                wrong(page.path, f"{where} exits with {done.returncode}: {done.stdout}{done.stderr}")
            elif '"status":5' in done.stdout.replace(" ", ""):
                wrong(page.path, f"{where} is answered with a failure: {done.stdout}")
            continue
        if block.language == "sh":
            # What it would print is not checked.
            previous = None
        if previous is None:
            continue
        if block.language == "json":
            # The last document that was printed, since a block may make several requests.
            decoder, at, document = json.JSONDecoder(), 0, None
            text = previous.strip()
            try:
                while at < len(text):
                    document, at = decoder.raw_decode(text, at)
                    at += len(text[at:]) - len(text[at:].lstrip())
            except ValueError:
                wrong(page.path, f"{where} shows JSON, and this is printed: {text}")
            if not fits(json.loads(block.text), document):
                wrong(page.path, f"{where} is not what is printed: {json.dumps(document)}")
        elif block.language == "text" and not fits("…" + block.text.strip(), previous.strip()):
            wrong(page.path, f"{where} is not what is printed: {previous}")
        previous, has_printed = None, False
    return run


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )
    pages = {path: Page(path) for path in (ROOT / name for name in files.stdout.split()) if path.exists()}
    check_whole(pages)
    if only := [ROOT / name for name in sys.argv[2:]]:
        return finish({path: run_page(pages[path], program, pages) for path in only})
    check_links(pages)
    check_commands(pages, program)
    check_names(pages)
    check_rust(pages)
    with Service(program) as service:
        check_routes(pages, service.url)
    finish({path: run_page(page, program, pages) for path, page in pages.items()})


def finish(run):
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(run)} pages, {sum(run.values())} blocks run, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
