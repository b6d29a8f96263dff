"""Finds what makes a test's verdict depend on the machine, in all tests: lint-tests.py [FILE…]

- elapsed    an elapsed time has an upper limit, or is compared with another. Count (requests, steps, rows) instead, or let the clock be the test's.
- sleep      a sleep outside a polling loop. Wait for what has to happen, or let the clock be the test's.
- lease      a lease that a busy machine loses. Use one of a minute, or a clock of the test's.
- seed       a random number outside the places that print it. Take the seed from those.
- deadline   a deadline of its own that a busy machine misses, in time or as a number of attempts. Use the constant LONG.

Time that the test itself moves is left out: functions with `start_paused` or `time::pause`; for leases, with a `TestClock`. What has to be as it is has a comment
`lint: REASON` on the line or above it, or is in ALLOWED. tests/infra/lint_test.py has cases of each rule.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = [
    "tests/**/*.rs", "cli/tests/**/*.rs", "shared/*/tests/**/*.rs", "shared/*/src/**/*.rs", "cli/src/**/*.rs", "functions/*/src/**/*.rs",
    "tests/**/*.py", ".ci/*.py", "clients/*.py", "clients/python/tests/**/*.py", "clients/typescript/test/**/*.ts",
]
# Programs that tests run; what is no part of the gate, and runs for a given time; and this, with its cases.
LEFT_OUT = re.compile(
    r"^tests/(bench|chaos|fuzz|macros|mutants|report|peers)/|^tests/(soak|scale/src/\w+)\.rs|/target/|/node_modules/"
    r"|^\.ci/lint-tests\.py|^tests/infra/lint_test\.py"
)
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
# Here random numbers may be drawn: seeds that are printed, and ports.
DRAWN = {"tests/support/seeds.rs", ".ci/ports.py"}
# In seconds: what a busy machine needs more than.
LEASE, DEADLINE = 5, 60

WHAT_TO_DO = {
    "elapsed": "count instead of measuring, or let the clock be the test's",
    "sleep": "poll for what has to happen, until LONG",
    "lease": "use a lease of a minute, or a clock of the test's",
    "seed": "take the seed from where it is printed",
    "deadline": "use the constant LONG",
}

UNITS = {"secs": 1, "millis": 0.001, "micros": 0.000001, "nanos": 0.000000001, "mins": 60, "secs_f64": 1, "secs_f32": 1}
DURATION = r"(?:std::time::)?Duration::(?:from_)?(secs|millis|micros|nanos|mins|secs_f64|secs_f32|new)\(\s*([\d_.]+(?:\s*\*\s*[\d_.]+)?)(?:u\d+|f\d+)?\s*(?:, 0\s*)?\)"
# What a deadline is given to.
WAITS = r"(?:\b(?:recv_|wait_|wait_while_|park_|read_|write_|connect_)?timeout(?:_while|_ms)?|\bset_(?:read|write)_timeout|\bwithin)\(\s*(?:Some\()?(?:&?[\w.]+, )?"
# Where it is counted from.
BEGINS = r"\bnow\(\) \+ "


def seconds(found):
    number = 1
    for factor in found[1].replace("_", "").split("*"):
        number *= float(factor)
    return UNITS.get(found[0], 1) * number


class Source:
    """A file: its lines without strings' and comments' brackets in the way, the part that is a test, and whose the clock is."""

    def __init__(self, name, text):
        self.name, self.lines = name, text.splitlines()
        self.kind = pathlib.PurePath(name).suffix
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
            if not re.match(r"#\[cfg\((all\()?test\b", line):
                continue
            # Other attributes may follow.
            after = next((later for later in self.lines[number + 1 :] if not later.startswith(("#[", "//"))), "")
            if re.match(r"(pub(\(\w+\))? )?mod \w+ \{", after):
                return number
        return len(self.lines)

    def functions(self):
        """The functions: first and last line, which clocks they move, and whether they are tests."""
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
            moves = {"time": re.search(r"start_paused|time::pause\(|mock\.timers|fake_time", text), "leases": re.search("TestClock", text)}
            found.append((begin, last, {name for name, is_moved in moves.items() if is_moved}, "test" in text.split("fn ")[0]))
        return found

    def is_virtual(self, number, rule):
        """The time at this line is the test's: that of its function, or of all tests if the function only helps them."""
        # A clock that leases go by wakes up nobody who sleeps.
        clocks = {"time", "leases"} if rule == "lease" else {"time"} if rule != "seed" else set()
        around = [block for block in self.blocks if block[0] <= number <= block[1]]
        if any(block[2] & clocks for block in around):
            return True
        tests = [block for block in self.blocks if block[3]]
        return not any(block[3] for block in around) and bool(tests) and all(block[2] & clocks for block in tests)

    def statement(self, number):
        """The text from this line's statement on, as far as it belongs together."""
        first = number
        while first > 0 and self.code[first - 1].strip() and not re.search(r"[;{}]\s*$", self.code[first - 1]):
            first -= 1
        last = number
        while last + 1 < len(self.code) and self.code[last].strip() and not re.search(r"[;{}]\s*$", self.code[last]) and last - first < 12:
            last += 1
        return "\n".join(self.code[first : last + 1])

    def block(self, number):
        """The lines of the block that this line opens."""
        indent = len(self.code[number]) - len(self.code[number].lstrip())
        for last in range(number + 1, len(self.code)):
            if self.code[last].strip() and len(self.code[last]) - len(self.code[last].lstrip()) <= indent:
                return self.code[number + 1 : last]
        return self.code[number + 1 :]

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
                return any(re.search(r"\b(break|return)\b", line) for line in self.block(above))
        return False


CLOCK = r"(?:time\.)?(?:monotonic|perf_counter|process_time|time)(?:_ns)?\(\)"


def measured(source):
    """Names of variables that are elapsed times."""
    text = "\n".join(source.code)
    patterns = [
        r"let (?:mut )?(\w+)(?:: [\w:]+)? =\s[^;]*\.elapsed\(\)(?:\.as_\w+\(\))?(?: as \w+)?;",
        r"let (?:mut )?(\w+)(?:: [\w:]+)? = (?:[\w:]+::)?Instant::now\(\) - [^;]*;",
        r"let (?:mut )?(\w+)(?:: [\w:]+)? = (?:[\w:]+::)?Instant::now\(\)\.\w*duration_since\([^;]*;",
        rf"\b(\w+) = (?:\(|round\()?(?:{CLOCK}|datetime\.now\([^)]*\)) - \w+",
        r"(?:const|let) (\w+) = (?:performance|Date)\.now\(\) - \w+",
    ]
    return {name for pattern in patterns for name in re.findall(pattern, text) if not name.startswith("_")}


def find_elapsed(source):
    names = "|".join(sorted(measured(source)) or ["(?!)"])
    reading = r"\.elapsed\(\)|Instant::now\(\)\.\w*duration_since\([^()]*\)|Instant::now\(\) - \w+\)?"
    if source.kind != ".rs":
        reading = rf"(?:{CLOCK}|performance\.now\(\)|Date\.now\(\)|datetime\.now\([^)]*\)) - \w+\)?"
    time = rf"(?:(?:{reading})(?:\.as_\w+\(\))?(?: as \w+)?|\b(?:{names})(?:\.as_\w+\(\)|\.total_seconds\(\))?)"
    upper = rf"{time}\s*<=?\s*(?!<)|(?:\b[\d_.]+|\b[A-Z_]{{2,}}|{DURATION})\s+>=?\s*[\w.]*{time}"
    # In other words than `<`.
    upper += rf"|\.contains\(&?\(?[\w.]*{time}|assert_eq!\([\w.]*{time}|assertLess(?:Equal)?\([\w.]*{time}|expect\([\w.]*{time}\)\.(?:toBeLessThan|toBe\(|toEqual)"
    limit = re.compile(upper)
    # A failure that comes with time.
    over = re.compile(rf"\bif\b.*{time}\s*>=?|\bif\b.*{DURATION}\s*<=?\s*[\w.]*{time}")
    fails = r"panic!|unreachable!|assert!\(false|\braise\b|\bfail\(|throw new|sys\.exit"
    for number, line in enumerate(source.code):
        limited = limit.search(line) and re.search(r"assert|\bexpect\(", source.statement(number))
        if not limited and not (over.search(line) and re.search(fails, "\n".join([line, *source.block(number)]))):
            continue
        # A deadline of a loop is another rule's.
        if not source.polls(number):
            yield number, line.strip()


def find_sleeps(source):
    call = {
        ".rs": r"\bsleep(?:_ms|_until)?\((?!Duration::ZERO)|\bpark_timeout\(|\bsleep(?:_until)? as \w|Delay::new\(",
        ".py": r"(?<!def )\bsleep\((?!0\)|self\b)|wait_for_timeout\(|\bimport sleep as\b",
        ".ts": r"await (?:\w+\.)?(?:sleep|delay|wait|pause|setTimeout)\(|(?:=>|\{)\s*(?:void )?setTimeout\((?:\w+|\(\) => \w+\(\w*\)), |setTimeout as \w",
    }[source.kind]
    for number, line in enumerate(source.code):
        if not re.search(call, line) or re.search(r"\bfn sleep", line) or source.polls(number):
            continue
        # Nothing happens meanwhile: a busy machine does not make that red. But what has to have come by then may not have.
        after = next((line.strip() for line in source.code[number + 1 :] if line.strip()), "")
        if not re.match(r"assert!\(!|assert not |expect\(", after) or re.search(r"!.*is_empty\(\)|not .*empty\(\)", after):
            yield number, line.strip()


def find_leases(source):
    """Those that are given in seconds."""
    given = [
        r"--ttl[=\s\",']+(\d+)s?\b",
        r"\bttl_?[sS](?:econds|ecs)\"?'?\s*[:=(]\s*(?:Some\()?(\d+)\b",
        r"\bttl=(\d+(?:\.\d+)?)\b",
        r"\bttl: (\d+)\b",
        r"(?i)\b(?:let |const )?\w*ttl\w*(?:: \w+)? = (\d+)\b",
        # The names of the tests.
        r"\b(?:index_lock|lock|lease|acquire|acquire_lease|take)\([^()]*\"[^\"]*\", (\d+)\)",
    ]
    for number, line in enumerate(source.code):
        for pattern in given:
            if any(0 < float(value) < LEASE for value in re.findall(pattern, line)):
                yield number, line.strip()
                break
        else:
            short = any(0 < seconds(found) < LEASE for found in re.findall(DURATION, line))
            if re.search(r"--ttl[=\s\",']+\d+ms\b", line) or short and re.search(r"(?i)\bttl\b|\w_ttl\b|\bttl_\w|\bhold_lease\(|\blasts\b", line):
                yield number, line.strip()


def find_seeds(source):
    if source.name in DRAWN:
        return
    call = {
        ".rs": r"\brand::random|\bthread_rng\(|\brand::(?:rng|make_rng)\(|\buse rand::\{?[^;]*\b(?:rng|random|make_rng)\b|\bfrom_entropy\(|\bfrom_os_rng\(|\bfrom_rng\(|"
        r"\b(?:OsRng|SysRng|ThreadRng)\b|\bgetrandom::|\bfastrand::(?!Rng\b)|\bRng::new\(\)|RandomState::new\(\)\.(?:build_hasher|hash_one)|"
        r"seed_from_u64\([^;]*(?:SystemTime|Timestamp::now|new_v4)|as_nanos\(\)[^;]*seed|seed[^;]*as_nanos\(\)",
        # Without a seed, or of the module, which nobody has given one.
        ".py": r"\brandom\.(?:Random|seed|SystemRandom)\((?:None)?\)|\brandom\.(?:random|randrange|randint|choice|choices|shuffle|sample|uniform|getrandbits|randbytes)\(|"
        r"\bsecrets\.\w+\(|\bos\.urandom\(|\bfrom random import\b(?! Random$)|seed\(time\.|Random\(time\.",
        ".ts": r"\bMath\.random\(|\bgetRandomValues\(|\brandom(?:Int|Bytes)\(",
    }[source.kind]
    for number, line in enumerate(source.code):
        if re.search(call, line):
            yield number, line.strip()


def counted(source, number):
    """For how many seconds a loop tries, if it tries a number of times: one that ends early, or fails at its last attempt."""
    patterns = {
        ".rs": r"for \w+ in \d+\.\.=?([\d_]+) \{",
        ".py": r"for \w+ in range\((?:\d+, )?([\d_]+)\):",
        ".ts": r"for \(let \w+ = \d+; \w+ <=? ([\d_]+);",
    }
    times = re.search(patterns[source.kind], source.code[number])
    body = "\n".join(source.block(number)) if times else ""
    if not re.search(r"\b(break|return)\b", body):
        return None
    steps = {
        ".rs": [seconds(found) for found in re.findall(rf"sleep\({DURATION}", body)],
        ".py": [float(found) for found in re.findall(r"sleep\((\d*\.?\d+)", body)] + [int(found.replace("_", "")) / 1000 for found in re.findall(r"wait_for_timeout\(([\d_]+)", body)],
        ".ts": [int(found.replace("_", "")) / 1000 for found in re.findall(r"(?:setTimeout\(\w+, |sleep\(|delay\()([\d_]+)", body)],
    }[source.kind]
    return int(times[1].replace("_", "")) * sum(steps) if steps else None


def find_deadlines(source):
    text = "\n".join(source.code)
    in_milliseconds = source.name.startswith("tests/console/")
    for number, line in enumerate(source.code):
        if (tried := counted(source, number)) is not None and tried < DEADLINE:
            yield number, line.strip()
        elif source.kind == ".rs":
            # The next line is read, too, if a call is broken there.
            whole = line + (source.code[number + 1].strip() if line.endswith("(") and number + 1 < len(source.code) else "")
            measures = re.search(rf"elapsed\(\)(?:\.as_\w+\(\))?\s*[<>]=?\s*(?:{DURATION}|([\d_]+)\b(?!_))", whole)
            if measures and source.polls(number):
                if (seconds(measures.groups()[:2]) if measures[1] else float(measures[3].replace("_", "")) / (1000 if "as_millis" in whole else 1)) < DEADLINE:
                    yield number, line.strip()
                continue
            if not re.search(r"Duration|LONG|: [ui]\d+ =", whole) or re.search(r"is_err\(\)|unwrap_err\(\)|\belapsed\b", source.statement(number)):
                # It is expected to expire.
                continue
            given = re.findall(rf"(?:{WAITS}|{BEGINS}){DURATION}", whole)
            part = re.search(rf"(?:{WAITS}|{BEGINS})(?:\w+::)*LONG\s*/", whole)
            if part or any(seconds(found) < DEADLINE for found in given):
                yield number, line.strip()
            named = re.search(rf"(?:const|static|let) (\w+)(?:: (?:std::time::)?Duration)? = {DURATION};", line)
            if named and seconds(named.groups()[1:]) < DEADLINE:
                used = rf"(?:{WAITS}|{BEGINS}|elapsed\(\) [<>]=? ){named[1]}\b(?!\.)(?![^;]*(?:is_err|unwrap_err)\(\))"
                if re.search(used, text):
                    yield number, line.strip()
            number_of = re.search(r"const (\w+): [ui]\d+ = ([\d_]+);", line)
            if number_of and float(number_of[2].replace("_", "")) < DEADLINE and re.search(rf"(?:{WAITS}|{BEGINS})(?:std::time::)?Duration::from_secs\({number_of[1]}\)", text):
                yield number, line.strip()
        elif source.kind == ".py":
            ended = re.search(r"except subprocess\.TimeoutExpired", "\n".join(source.code[number : number + 2]))
            units = 1000 if in_milliseconds and not re.search(r"urlopen|HTTPConnection|subprocess|\.wait\(|\.join\(|communicate|run\(", line) else 1
            values = re.findall(
                r"(?:monotonic|time)\(\) \+ ([\d_]+(?:\.\d+)?)\b|\b\w*(?:timeout|deadline)=([\d_]+(?:\.\d+)?)\b(?! \*)|\.(?:wait|join|settimeout|set_default_timeout|get)\(([\d_]+(?:\.\d+)?)\)|"
                r"\b\w*(?:TIMEOUT|DEADLINE|SOON|timeout|deadline) = ([\d_]+(?:\.\d+)?)$|\bcreate_connection\(.*, ([\d_]+)\)|asyncio\.timeout\(([\d_]+)\)|\bwait_for\(.*, ([\d_]+)\)",
                line,
            )
            for value in values:
                # A process that does not end is killed; what ends within a second is a step of a poll.
                given = float(next(filter(None, value)).replace("_", ""))
                if not ended and units < given < units * DEADLINE:
                    yield number, line.strip()
                    break
            for value in re.findall(r"while (?:time\.)?(?:monotonic|time|perf_counter)\(\) - \w+ < ([\d_.]+)", line):
                if float(value) < DEADLINE:
                    yield number, line.strip()
        elif found := re.search(
            r"(?:Date|performance)\.now\(\) \+ ([\d_]+)|AbortSignal\.timeout\(([\d_]+)\)|\{ (?:\w+, )*timeout: ([\d_]+)(?:, \w+)* \}, (?:async )?\(|=> reject\([^;]*\), ([\d_]+)\)", line
        ):
            if int(next(filter(None, found.groups())).replace("_", "")) < 1000 * DEADLINE:
                yield number, line.strip()


RULES = {"elapsed": find_elapsed, "sleep": find_sleeps, "lease": find_leases, "seed": find_seeds, "deadline": find_deadlines}


def problems(source):
    """What the rules find and nothing allows: rule, number and text of the line; and what of ALLOWED that has used."""
    found, used = [], set()
    for rule, find in RULES.items():
        for number, line in find(source):
            allowed = source.reasons[number] or number > 0 and source.reasons[number - 1]
            listed = {(name, part) for name, part in ALLOWED if source.name == name and part in line}
            used |= listed
            if number >= source.first and not allowed and not listed and not source.is_virtual(number, rule):
                found.append((rule, number + 1, line))
    return found, used


def main():
    chosen = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    paths = chosen or sorted({path for pattern in TESTS for path in ROOT.glob(pattern)})
    files, wrong, used = 0, 0, set()
    for path in paths:
        name = str(path.relative_to(ROOT))
        if not chosen and LEFT_OUT.search(name):
            continue
        source = Source(name, path.read_text())
        if source.first >= len(source.lines):
            continue
        files += 1
        found, of_file = problems(source)
        used |= of_file
        wrong += len(found)
        for rule, number, line in found:
            print(f"{name}:{number}: {rule}: {WHAT_TO_DO[rule]}: {line[:120]}")
    for name, part in sorted(ALLOWED.keys() - used) if not chosen else []:
        wrong += 1
        print(f".ci/lint-tests.py: ALLOWED has what is no more in {name}: {part}")
    print(f"{files} files of tests, {wrong} problems")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
