"""Finds what makes a test's verdict depend on the machine, in all tests: lint-tests.py [FILE…]

- elapsed    an elapsed time has an upper limit. Count (requests, steps, rows) instead, or let the clock be the test's.
- sleep      a sleep outside a polling loop. Wait for what has to happen, or let the clock be the test's.
- lease      a lease that a busy machine loses. Use one of a minute, or a clock of the test's.
- seed       a random number outside the places that print it. Take the seed from those.
- deadline   a deadline of its own that a busy machine misses. Use the constant LONG.

Time that the test itself moves is left out: functions with `start_paused`, `time::pause` or a `TestClock`. What has to be as it is has a comment
`lint: REASON` on the line or above it, or is in ALLOWED.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = [
    "tests/**/*.rs", "cli/tests/**/*.rs", "shared/*/tests/**/*.rs", "shared/*/src/**/*.rs", "cli/src/**/*.rs",
    "tests/**/*.py", "clients/python/tests/*.py", "clients/typescript/test/*.ts",
]
# Programs that tests run, and what is no part of the gate, and runs for a given time.
LEFT_OUT = re.compile(r"^tests/(bench|chaos|fuzz|macros|mutants|report|peers)/|^tests/(soak|scale/src/\w+)\.rs|/target/|/node_modules/")
# Beside the comments: what is as it has to be, by its file and a part of the line.
ALLOWED = {
    ("cli/src/connections/tests.rs", "sleep(Duration::from_millis("): "handlers that answer late",
    ("cli/tests/commands/migration.rs", "sleep(Duration::from_millis(150 * kill as u64))"): "kills a copy at different moments, and later once it has written",
    ("cli/tests/commands/regions.rs", "sleep(Duration::from_millis(1"): "cuts links at different moments",
    ("clients/typescript/test/faults.test.ts", "setTimeout(resolve, 50)"): "a body of which there is always more",
    ("shared/sync/tests/copy.rs", "sleep(std::time::Duration::from_micros(50 * round))"): "ends a copy at different moments",
    ("shared/sync/tests/copy.rs", "sleep(std::time::Duration::from_millis(30))"): "nothing depends on it: what is purged may be seen or not",
    ("shared/sync/tests/lazy.rs", "sleep(std::time::Duration::from_micros(40 * round))"): "ends a copy at different moments",
    ("tests/copies.rs", "sleep(IMPATIENT.deadline + "): "the target is away for at least as long",
    ("tests/dynamodb/uncertain.rs", "sleep(Duration::from_millis(100))"): "answers late",
    ("tests/support/link.rs", "sleep(time)"): "delays what it passes on",
    ("tests/support/proxy.rs", "sleep(by)"): "delays what it passes on",
}
# Here seeds are drawn, and printed.
SEEDS = {"tests/support/seeds.rs"}
# In seconds: what a busy machine needs more than.
LEASE, DEADLINE = 5, 60

WHAT_TO_DO = {
    "elapsed": "count instead of measuring, or let the clock be the test's",
    "sleep": "poll for what has to happen, until LONG",
    "lease": "use a lease of a minute, or a clock of the test's",
    "seed": "take the seed from where it is printed",
    "deadline": "use the constant LONG",
}

UNITS = {"secs": 1, "millis": 0.001, "micros": 0.000001, "mins": 60, "secs_f64": 1, "secs_f32": 1}
DURATION = r"Duration::from_(secs|millis|micros|mins|secs_f64|secs_f32)\(\s*([\d_.]+)\s*\)"
# What a deadline is given to.
WAITS = r"(?:\b(?:recv_|wait_)?timeout|\bwithin)\(\s*(?:&?[\w.]+, )?(?:std::time::)?"


def seconds(found):
    return UNITS[found[0]] * float(found[1].replace("_", ""))


class Source:
    """A file: its lines without strings' and comments' brackets in the way, the part that is a test, and whose the clock is."""

    def __init__(self, path):
        self.path, self.name = path, str(path.relative_to(ROOT))
        self.lines = path.read_text().splitlines()
        self.kind = path.suffix
        comment = r"#" if self.kind == ".py" else r"//"
        self.code = [re.sub(rf"(^|\s){comment}.*", "", line) for line in self.lines]
        self.reasons = [bool(re.search(rf"{comment} lint: \S", line)) for line in self.lines]
        self.first = self.where_tests_begin()
        self.blocks = self.functions()

    def where_tests_begin(self):
        """In the sources of a library: the module of tests, if that is in the file."""
        if self.kind != ".rs" or "/src/" not in self.name or self.name.startswith("tests/"):
            return 0
        if re.search(r"/tests(\.rs$|/)|/src/test_", self.name):
            return 0
        for number, line in enumerate(self.lines):
            if line.startswith("#[cfg(test)]") and number + 1 < len(self.lines) and re.match(r"(pub )?mod \w+ \{", self.lines[number + 1]):
                return number
        return len(self.lines)

    def functions(self):
        """The functions: first and last line, and whether their time is the test's."""
        found = []
        heads = {".rs": r"(\s*)(?:pub(?:\(\w+\))? )?(?:async )?fn \w", ".py": r"(\s*)(?:async )?def \w", ".ts": r"(\s*)(?:await )?(?:export )?(?:(?:async )?function|test|it)\b"}
        for number, line in enumerate(self.code):
            if not (head := re.match(heads[self.kind], line)):
                continue
            indent, last = head[1], number
            for last in range(number + 1, len(self.code)):
                if self.code[last].strip() and len(self.code[last]) - len(self.code[last].lstrip()) <= len(indent):
                    break
            begin = number
            while begin > 0 and self.code[begin - 1].lstrip().startswith(("#[", "@")):
                begin -= 1
            text = "\n".join(self.code[begin : last + 1])
            found.append((begin, last, bool(re.search(r"start_paused|time::pause\(|TestClock|mock\.timers|fake_time", text)), "test" in text.split("fn ")[0]))
        return found

    def is_virtual(self, number):
        """The time at this line is the test's: that of its function, or of all tests if the function only helps them."""
        around = [block for block in self.blocks if block[0] <= number <= block[1]]
        if any(block[2] for block in around):
            return True
        tests = [block for block in self.blocks if block[3]]
        return not any(block[3] for block in around) and bool(tests) and all(block[2] for block in tests)

    def statement(self, number):
        """The text from this line's statement on, as far as it belongs together."""
        first = number
        while first > 0 and self.code[first - 1].strip() and not re.search(r"[;{}]\s*$", self.code[first - 1]):
            first -= 1
        last = number
        while last + 1 < len(self.code) and self.code[last].strip() and not re.search(r"[;{}]\s*$", self.code[last]) and last - first < 12:
            last += 1
        return "\n".join(self.code[first : last + 1])

    def polls(self, number):
        """The line is in a loop that ends once something holds."""
        if re.search(r"\b(loop|while)\b", self.code[number]):
            return True
        indent = lambda line: len(line) - len(line.lstrip())
        at = indent(self.code[number])
        for above in range(number - 1, -1, -1):
            line = self.code[above]
            if not line.strip() or indent(line) >= at:
                continue
            at = indent(line)
            if re.search(r"\bfn \w|^\s*(async )?def \w", line):
                return False
            if re.search(r"\b(loop|while)\b", line):
                return True
            if re.search(r"^\s*(for\b|'\w+: for\b)", line):
                body = self.code[above + 1 : next((n for n in range(above + 1, len(self.code)) if self.code[n].strip() and indent(self.code[n]) <= at), len(self.code))]
                return any(re.search(r"\b(break|return)\b", line) for line in body)
        return False


def measured(source):
    """Names of variables that are elapsed times."""
    text = "\n".join(source.code)
    patterns = [
        r"let (?:mut )?(\w+)(?:: Duration)? = [\w.()]*\.elapsed\(\)(?:\.as_\w+\(\))?;",
        r"\b(\w+) = time\.(?:monotonic|time|perf_counter)\(\) - \w+",
        r"(?:const|let) (\w+) = (?:performance|Date)\.now\(\) - \w+",
    ]
    return {name for pattern in patterns for name in re.findall(pattern, text)}


def find_elapsed(source):
    names = "|".join(sorted(measured(source)) or ["(?!)"])
    time = rf"(?:\.elapsed\(\)(?:\.as_\w+\(\))?|(?:time\.(?:monotonic|time|perf_counter)|performance\.now|Date\.now)\(\) - \w+\)?|\b(?:{names})(?:\.as_\w+\(\))?)"
    limit = re.compile(rf"{time}\s*<=?\s*(?!<)|(?:\b[\d_.]+|\b[A-Z_]{{2,}}|{DURATION})\s+>=?\s*\w*{time}")
    for number, line in enumerate(source.code):
        # A deadline of a loop is another rule's.
        if limit.search(line) and not source.polls(number) and re.search(r"assert|\bexpect\(", source.statement(number)):
            yield number, line.strip()


def find_sleeps(source):
    call = {
        ".rs": r"(?:thread::|time::|\b)sleep\((?!Duration::ZERO)",
        ".py": r"\b(?:time|asyncio)\.sleep\((?!0\))|wait_for_timeout\(",
        ".ts": r"await (?:sleep|delay|setTimeout)\(|=> setTimeout\(\w+, ",
    }[source.kind]
    for number, line in enumerate(source.code):
        if not re.search(call, line) or source.polls(number):
            continue
        # Nothing happens meanwhile: a busy machine does not make that red.
        after = next((line.strip() for line in source.code[number + 1 :] if line.strip()), "")
        if not re.match(r"assert!\(!|assert not |expect\(", after):
            yield number, line.strip()


def find_leases(source):
    """Those that are given in seconds."""
    given = [
        r"--ttl[=\s\",']+(\d+)s?\b",
        r"\bttl_?[sS]econds\"?'?\s*[:=(]\s*(?:Some\()?(\d+)\b",
        r"\bttl=(\d+(?:\.\d+)?)\b",
        r"\bttl: (\d+)\b",
    ]
    for number, line in enumerate(source.code):
        for pattern in given:
            if any(0 < float(value) < LEASE for value in re.findall(pattern, line)):
                yield number, line.strip()
                break
        else:
            if re.search(r"\bttl\b|\bhold_lease\(", line) and any(0 < seconds(found) < LEASE for found in re.findall(DURATION, line)):
                yield number, line.strip()


def find_seeds(source):
    if source.name in SEEDS:
        return
    call = r"\brand::random\b|\bthread_rng\(|\brand::rng\(|\bfrom_entropy\(|\bfrom_os_rng\(|\brandom\.Random\(\)|\brandom\.seed\(\)|\bMath\.random\("
    for number, line in enumerate(source.code):
        if re.search(call, line):
            yield number, line.strip()


def find_deadlines(source):
    text = "\n".join(source.code)
    constants = {name for name in re.findall(r"const (\w+): (?:std::time::)?Duration", text)}
    for number, line in enumerate(source.code):
        if source.kind == ".rs":
            if re.search(r"is_err\(\)|unwrap_err\(\)|\belapsed\b", source.statement(number)):
                # It is expected to expire.
                continue
            given = re.findall(rf"(?:{WAITS}|Instant::now\(\) \+ (?:std::time::)?){DURATION}", line)
            if any(seconds(found) < DEADLINE for found in given):
                yield number, line.strip()
            constant = re.search(rf"const (\w+): (?:std::time::)?Duration = (?:std::time::)?{DURATION}", line)
            if constant and constant[1] in constants and seconds(constant.groups()[1:]) < DEADLINE:
                used = rf"(?:{WAITS}|Instant::now\(\) \+ |elapsed\(\) [<>]=? ){constant[1]}\b(?!\.)"
                if re.search(used, text):
                    yield number, line.strip()
        elif source.kind == ".py":
            ended = re.search(r"except subprocess\.TimeoutExpired", "\n".join(source.code[number : number + 2]))
            for value in re.findall(r"(?:monotonic|time)\(\) \+ (\d+(?:\.\d+)?)\b|\b\w*(?:timeout|deadline)=(\d+(?:\.\d+)?)\b|\.(?:wait|join)\((\d+(?:\.\d+)?)\)", line):
                # A process that does not end is killed; what ends within a second is a step of a poll.
                if not ended and 1 < float(next(filter(None, value))) < DEADLINE:
                    yield number, line.strip()
                    break
        elif re.search(r"(?:Date|performance)\.now\(\) \+ [\d_]+|AbortSignal\.timeout\([\d_]+\)", line):
            value = re.search(r"(?:\+ |timeout\()([\d_]+)", line)[1].replace("_", "")
            if int(value) < 1000 * DEADLINE:
                yield number, line.strip()


RULES = {"elapsed": find_elapsed, "sleep": find_sleeps, "lease": find_leases, "seed": find_seeds, "deadline": find_deadlines}


def main():
    chosen = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    paths = chosen or sorted({path for pattern in TESTS for path in ROOT.glob(pattern)})
    files, problems, used = 0, 0, set()
    for path in paths:
        source = Source(path)
        if not chosen and LEFT_OUT.search(source.name) or source.first >= len(source.lines):
            continue
        files += 1
        for rule, find in RULES.items():
            for number, line in find(source):
                allowed = source.reasons[number] or number > 0 and source.reasons[number - 1]
                listed = {(name, part) for name, part in ALLOWED if source.name == name and part in line}
                used |= listed
                allowed = allowed or bool(listed)
                if number < source.first or allowed or rule != "seed" and source.is_virtual(number):
                    continue
                problems += 1
                print(f"{source.name}:{number + 1}: {rule}: {WHAT_TO_DO[rule]}: {line[:120]}")
    for name, part in sorted(ALLOWED.keys() - used) if not chosen else []:
        problems += 1
        print(f".ci/lint-tests.py: ALLOWED has what is no more in {name}: {part}")
    print(f"{files} files of tests, {problems} problems")
    sys.exit(bool(problems))


main()
