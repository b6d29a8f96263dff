"""Steps of .ci/run in order and beside one another, with others in the place of the true ones."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RUN = (ROOT / ".ci" / "run").read_text()
STEPS = re.findall(r"^step_([a-z0-9-]+)\(\)", RUN, re.M)
# By their names alone.
NAMED = {"libraries", "releases", "traces", "unsound-s3"}
# Where the functions of the steps end.
END = "\nbeside=() skips=false\n"
DEADLINE = 120


class Steps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        subprocess.run(["git", "init", "--quiet", folder.name], check=True)
        (self.folder / ".gitignore").write_text("target/\n")
        (self.folder / "deny.toml").write_text("")

    def write(self, prelude="", **steps):
        """Writes .ci/run with all steps, of which these do this and the others nothing."""
        begin, end = RUN.split(END)
        bodies = {step: steps.get(step.replace("-", "_"), ":") for step in STEPS}
        stubs = "".join(f"step_{step}() {{\n{body}\n}}\n" for step, body in bodies.items())
        script = self.folder / ".ci" / "run"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"{begin}\ncargo() {{ :; }}\n{prelude}\n{stubs}{END}{end}")

    @contextlib.contextmanager
    def started(self, *arguments):
        # From another folder, by a relative path.
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name not in ("CARGO_TARGET_DIR", "NAMESERVICE_ONLY")}
        yield subprocess.Popen(
            ["bash", "../.ci/run", *arguments],
            cwd=elsewhere,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run_steps(self, *arguments):
        """Returns the exit code and the lines that were printed."""
        with self.started(*arguments) as process:
            output, _ = process.communicate(timeout=DEADLINE)
        return process.returncode, output.splitlines()

    def assert_ends(self, pid):
        """A process ends soon, though nobody has waited for it."""
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            try:
                # One that has ended is there until its parent, which is not ours, has looked.
                if (pathlib.Path("/proc") / pid / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            except (ProcessLookupError, FileNotFoundError):
                return
            time.sleep(0.05)
        os.kill(int(pid), signal.SIGKILL)
        self.fail(f"process {pid} is left")

    def pids(self, lines):
        return [line.removeprefix("pid ") for line in lines if line.startswith("pid ")]

    def test_each_step_runs_once_and_its_output_is_shown_and_kept(self):
        self.write(**{step.replace("-", "_"): f"echo printed by {step}" for step in STEPS})
        code, lines = self.run_steps()
        self.assertEqual((code, lines.count("== everything passed")), (0, 1), lines)
        for step in {*STEPS} - NAMED:
            self.assertEqual(lines.count(f"printed by {step}"), 1, (step, lines))
            log = (self.folder / "target" / "ci" / f"{step}.log").read_text()
            self.assertIn(f"printed by {step}\n", log)
            self.assertTrue(any(re.fullmatch(rf"\d+ s {step} \(load .*", line) for line in lines), (step, lines))

    def test_the_list_has_each_step_once_and_nothing_else(self):
        listed = subprocess.run(["bash", ".ci/run", "--list"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        self.assertEqual(sorted(line.split()[0] for line in listed.splitlines()), sorted(STEPS))

    def test_a_step_is_skipped_only_if_it_has_passed_with_the_same_files(self):
        prints = {step.replace("-", "_"): f"echo printed by {step}" for step in STEPS}
        self.write(**prints)
        watched = {f"printed by {step}" for step in ("dependencies", "tests", "moto", "clients")}
        ran = lambda *arguments: {line.removeprefix("printed by ") for line in self.run_steps(*arguments)[1] if line in watched}
        self.assertEqual(ran(), {"dependencies", "tests", "moto", "clients"})
        self.assertEqual(ran(), {"tests"})
        self.assertIn("0 s dependencies, skipped", self.run_steps()[1])
        self.assertEqual(ran("--all"), {"dependencies", "tests", "moto", "clients"})
        self.assertEqual(ran("dependencies"), {"dependencies"}, "it is named")
        (self.folder / "deny.toml").write_text("[bans]\n")
        self.assertEqual(ran(), {"dependencies", "tests", "moto", "clients"})
        for file in ("Cargo.lock", "Cargo.toml", "a/b/Cargo.toml"):
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text("")
            self.assertIn("dependencies", ran(), file)
        (self.folder / "deny.toml").chmod(0o755)
        self.assertIn("dependencies", ran(), "its mode")
        for page in ("docs/page.md", "README.md"):
            (self.folder / page).parent.mkdir(exist_ok=True)
            (self.folder / page).write_text("")
            self.assertEqual(ran(), {"tests"}, page)
        (self.folder / "functions").mkdir()
        (self.folder / "functions" / "page.md").write_text("")
        self.assertEqual(ran(), {"tests", "moto", "clients"}, "a program may have it")
        self.write(**prints | {"dependencies": "false"})
        self.assertEqual(self.run_steps()[0], 1, "it is another step")
        self.assertEqual(self.run_steps()[0], 1, "it has not passed")

    def test_a_step_that_has_failed_since_it_passed_is_not_skipped(self):
        self.write(moto="echo printed by moto; [ ! -e target/broken ]")
        self.assertEqual(self.run_steps()[0], 0)
        broken = self.folder / "target" / "broken"
        broken.touch()
        self.assertEqual(self.run_steps("moto")[0], 1)
        broken.unlink()
        self.assertIn("printed by moto", self.run_steps()[1])

    def test_a_step_is_not_skipped_with_another_seed(self):
        self.write(moto="echo printed by moto")
        self.assertEqual(self.run_steps()[0], 0)
        self.assertNotIn("printed by moto", self.run_steps()[1])
        os.environ["NAMESERVICE_TEST_BASE"] = "2"
        self.addCleanup(os.environ.pop, "NAMESERVICE_TEST_BASE")
        self.assertIn("printed by moto", self.run_steps()[1])

    def test_a_step_of_which_named_tests_alone_have_passed_is_not_skipped(self):
        only = 'if [ "${1:-}" = moto ]; then NAMESERVICE_ONLY=a::b; fi'
        self.write(only, moto="echo printed by moto; echo run_tests >/dev/null; echo running 1 test")
        self.assertEqual(self.run_steps("moto")[0], 0)
        self.assertFalse((self.folder / "target" / "ci" / "moto.passed").exists())
        self.assertIn("printed by moto", self.run_steps()[1])
        self.assertTrue((self.folder / "target" / "ci" / "moto.passed").exists())

    def test_what_waits_for_a_step_runs_though_that_is_skipped(self):
        self.write()
        self.assertEqual(self.run_steps()[0], 0)
        self.assertEqual(self.run_steps("--all")[0], 0)
        (self.folder / "target" / "ci" / "clients.passed").unlink()
        lines = self.run_steps()[1]
        self.assertIn("0 s hostile, skipped", lines)
        self.assertTrue(any(re.fullmatch(r"\d+ s clients \(load .*", line) for line in lines), lines)

    def test_the_files_of_a_step_have_its_scripts_and_what_these_name(self):
        """Of the scripts that a step runs: each file and folder of this tree that a line names."""
        listed = subprocess.run(
            ["bash", "-c", RUN.split("PROGRAMS=")[0] + 'for step in "${!FILES[@]}"; do printf "%s\\t%s\\n" "$step" "${FILES[$step]}"; done', ".ci/run"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        lists = dict(line.split("\t") for line in listed.splitlines())
        self.assertGreater(len(lists), 10)
        git = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--"]
        listing = lambda *paths: set(subprocess.run([*git, *paths], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines())
        # Without what steps have made.
        tree = listing()
        holds = lambda files, name: name in files or any(file.startswith(f"{name}/") for file in files)
        # With other arguments than the step's.
        unused = {"fluree": {"docs/tutorial-fluree.md"}, "infrastructure": {"clients/typescript"}}
        infrastructure = listing(*lists["infrastructure"].split())
        self.assertLessEqual(listing("infra", "functions/*/Cargo.toml", "tests/infra/*.mjs"), infrastructure)
        for step, paths in lists.items():
            files = listing(*paths.split())
            body = re.search(rf"^step_{step}\(\) {{\n?(.*?)}}$", RUN, re.M | re.S)[1]
            scripts, seen, named = [body], set(), set()
            while scripts:
                lines = [line for line in scripts.pop().splitlines() if not line.lstrip().startswith("#")]
                for name in re.findall(r"(?<![\w./$}-])(?:\.ci|\.github|findings|functions|infra|tests|docs|clients|cli|shared|events)/[\w./-]+", "\n".join(lines)):
                    name = name.rstrip("/")
                    path = ROOT / name
                    if name in seen or not holds(tree, name):
                        continue
                    seen.add(name)
                    named.add(name)
                    if path.is_file() and path.parent.name == ".ci" and path.read_bytes().startswith((b"#!/usr/bin/env bash", b"# ")):
                        scripts.append(path.read_text())
            self.assertTrue(named or step == "functions", step)
            for name in named - unused.get(step, set()):
                self.assertTrue(holds(files, name), f"{step} runs with {name}, which is not in its list")

    def test_a_step_that_fails_is_described_last_with_a_command_that_repeats_it(self):
        fails = r"printf 'NAMESERVICE_TEST_SEED=7\nfailures:\n\n---- a::b stdout ----\nfailures:\n    a::b\n    c\n\ntest result: FAILED\n'; exit 101; echo after it"
        self.write(tests=fails)
        code, lines = self.run_steps()
        self.assertEqual(code, 101, lines)
        self.assertNotIn("after it", lines)
        title = next(line for line in RUN.splitlines() if line.startswith("# tests: ")).removeprefix("# tests: ")
        report = lines[len(lines) - 1 - lines[::-1].index(f"== {title}") :]
        self.assertRegex(report[1], r"^FAILED with exit code 101: \d+ s tests \(load .* stolen\); its output: .*/target/ci/tests\.log$")
        self.assertEqual(report[2:5], ["failed tests:", "    a::b", "    c"])
        self.assertEqual(report[5:7], ["seeds that were printed:", "    NAMESERVICE_TEST_SEED=7"])
        self.assertEqual(report[7:], ["again: NAMESERVICE_TEST_SEED=7 NAMESERVICE_ONLY='a::b c' .ci/run tests"])

    def test_a_step_that_fails_ends_those_beside_it_whose_output_is_shown(self):
        left = 'sleep 600 & echo "pid $!"; touch begun'
        fails = "echo about to fail; until [ -e begun ]; do sleep 0.05; done; false; echo after it"
        for failing, beside in (("core", "infrastructure"), ("infrastructure", "dependencies")):
            with self.subTest(failing):
                (self.folder / "begun").unlink(missing_ok=True)
                self.write(**{failing: fails, beside: f"{left}; wait"})
                code, lines = self.run_steps()
                self.assertEqual(code, 1, lines)
                self.assertIn("about to fail", lines)
                self.assertNotIn("after it", lines)
                self.assertEqual(lines[-1], f"again: .ci/run {failing}")
                [pid] = self.pids(lines)
                self.assert_ends(pid)

    def test_a_step_beside_the_others_that_was_over_before_a_failure_is_described_as_what_it_was(self):
        waits = "touch begun; until [ -e over ]; do sleep 0.05; done; sleep 0.5; exit 101"
        for end, expected in (("exit 7", "(it has failed, too, with exit code 7: .ci/run dependencies)"), (":", None)):
            with self.subTest(end):
                for file in ("begun", "over"):
                    (self.folder / file).unlink(missing_ok=True)
                self.write(core=waits, dependencies=f"until [ -e begun ]; do sleep 0.05; done; echo printed; touch over; {end}")
                code, lines = self.run_steps()
                self.assertEqual((code, lines.count("printed")), (101, 1), lines)
                self.assertEqual([line for line in lines if line.startswith("(it ")], [expected] if expected else [])
                self.assertEqual(lines[-1], "again: .ci/run core")
                self.assertEqual((self.folder / "target/ci/dependencies.passed").exists(), expected is None)

    def test_what_is_told_to_end_has_time_for_its_own_end(self):
        cleans = """trap 'sleep 0.5; echo removed >removed; exit' TERM; touch begun; while :; do sleep 0.05; done"""
        self.write(core="until [ -e begun ]; do sleep 0.05; done; false", infrastructure=f"bash -c {shlex.quote(cleans)}")
        self.assertEqual(self.run_steps()[0], 1)
        self.assertTrue((self.folder / "removed").exists())

    def test_nothing_that_a_step_has_started_outlives_it(self):
        """Neither what it has put into the background, nor what has left its process group."""
        for end in (":", "false"):
            with self.subTest(end):
                leaves = """setsid sh -c 'echo "pid $$"; touch left; exec sleep 600' & until [ -e left ]; do sleep 0.05; done"""
                self.write(core=f'rm -f left; sleep 600 & echo "pid $!"; {leaves}; {end}')
                code, lines = self.run_steps("core")
                self.assertEqual(code, int(end == "false"), lines)
                pids = self.pids(lines)
                self.assertEqual(len(pids), 2, lines)
                for pid in pids:
                    self.assert_ends(pid)

    def test_all_ends_with_the_script_even_if_it_alone_is_told_to_end(self):
        left = 'sleep 600 & echo "$!" >>begun; wait'
        self.write(core=left, infrastructure=left)
        begun = self.folder / "begun"
        with self.started() as process:
            until = time.monotonic() + DEADLINE
            while not (begun.exists() and begun.read_text().count("\n") == 2):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.05)
            process.terminate()
            process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 143)
        for pid in begun.read_text().split():
            self.assert_ends(pid)

    def test_a_selection_without_a_test_fails_and_one_by_name_runs_alone(self):
        named = "--quiet --exact --include-ignored a::b c"
        cases = [("", "", 0, None), ("a::test: test", "", 1, "--quiet a::"), ("", "a::b c", 1, named), ("a::test: test", "a::b c", 0, None)]
        for listed, only, found, expected in cases:
            with self.subTest(listed=listed, only=only):
                program = self.folder / "program"
                program.write_text(f'#!/bin/sh\nif [ "$1" = --list ]; then echo "{listed}"; else echo "it runs with $*"; echo "running {found} tests"; fi\n')
                program.chmod(0o755)
                artifact = json.dumps({"executable": str(program), "target": {"name": "suite", "kind": ["test"]}})
                cargo = f"cargo() {{ if [[ $* = *json* ]]; then echo '{artifact}'; fi; }}\nNAMESERVICE_ONLY='{only}'"
                self.write(cargo, core="run_tests suite . a::")
                code, lines = self.run_steps("core")
                self.assertEqual(code, 0 if expected else 1, lines)
                ran = [line for line in lines if line.startswith("it runs with ")]
                self.assertEqual(ran[:1] if found else [], [f"it runs with {expected}"] if expected else [])

    def test_a_step_that_runs_no_tests_by_name_passes_when_some_are_named(self):
        self.write("NAMESERVICE_ONLY=a::b", core="echo done", tests="run_cargo_tests --workspace")
        self.assertEqual(self.run_steps("core")[0], 0)
        self.assertEqual(self.run_steps("tests")[0], 1, "it has run none of them")


if __name__ == "__main__":
    unittest.main()
