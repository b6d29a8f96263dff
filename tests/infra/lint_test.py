"""What .ci/lint-tests.py finds, and what it leaves alone: each rule in the forms in which it is broken."""

import importlib.util
import pathlib
import re
import textwrap
import unittest

LINT = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "lint-tests.py"
SPEC = importlib.util.spec_from_file_location("lint_tests", LINT)
lint = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(lint)

RUST, PYTHON, TYPESCRIPT, CONSOLE = "tests/a.rs", "tests/a.py", "clients/typescript/test/a.test.ts", "tests/console/a.py"
# By rule and file: one case a line, each the body of a test.
FOUND = {
    ("elapsed", RUST): """
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}");
        assert!(begun.elapsed().as_millis() <= 500);
        assert!(begun.elapsed().as_secs_f64() < 0.5);
        assert!(LIMIT > begun.elapsed());
        assert!(Duration::from_secs(5) > begun.elapsed());
        let took = begun.elapsed(); assert!(took < Duration::from_secs(5));
        let took = Instant::now() - begun; assert!(took < Duration::from_secs(5));
        let took = Instant::now().duration_since(begun); assert!(took < LIMIT);
        let milliseconds: f64 = begun.elapsed().as_secs_f64(); assert!(milliseconds < 0.3);
        assert!(Instant::now() - begun < Duration::from_secs(1));
        assert!(Instant::now().duration_since(begun) < Duration::from_secs(1));
        assert!((1..5).contains(&begun.elapsed().as_secs()));
        assert_eq!(begun.elapsed().as_secs(), 0);
        if begun.elapsed() > Duration::from_secs(5) { panic!("slow") }
        let took = begun.elapsed(); if took > LIMIT { panic!("{took:?}") }
    """,
    ("elapsed", PYTHON): """
        assert time.monotonic() - begun < 5
        assert time.perf_counter() - begun <= 0.5, "slow"
        took = time.monotonic() - begun; assert took < 5
        self.assertLess(time.monotonic() - begun, 5)
        took = time.time() - begun; self.assertLess(took, 5)
        assert datetime.now() - begun < timedelta(seconds=5)
        assert 5 > time.monotonic() - begun
    """,
    ("elapsed", TYPESCRIPT): """
        assert.ok(Date.now() - begun < 500);
        assert.ok(performance.now() - begun < 500);
        const took = Date.now() - begun; assert.ok(took < 500);
        expect(Date.now() - begun).toBeLessThan(500);
    """,
    ("sleep", RUST): """
        sleep(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        std::thread::sleep(Duration::from_millis(50));
        tokio::time::sleep_until(Instant::now() + PAUSE).await;
        thread::park_timeout(Duration::from_millis(50));
        use tokio::time::sleep as pause;
        for _ in 0..3 { send().await; sleep(PAUSE).await; }
        let clock = TestClock::default(); sleep(PAUSE).await;
        sleep(PAUSE).await; assert!(!seen.is_empty());
    """,
    ("sleep", PYTHON): """
        time.sleep(1)
        sleep(0.1)
        await asyncio.sleep(1)
        page.wait_for_timeout(300)
        from time import sleep as pause
    """,
    ("sleep", TYPESCRIPT): """
        await sleep(50);
        await timers.setTimeout(50);
        await new Promise((resolve) => setTimeout(resolve, 50));
        await new Promise<void>((done) => { setTimeout(done, 50); });
        await new Promise<void>((done) => setTimeout(() => done(), 50));
        import { setTimeout as pause } from "node:timers/promises";
    """,
    ("lease", RUST): """
        let request = json!({ "holder": "a", "ttl_seconds": 1 });
        let request = LeaseRequest { ttl_seconds: Some(2), ..request };
        run(&["lease", "run", "--ttl", "2"]);
        run(&["lease", "run", "--ttl=1s"]);
        run(&["lease", "run", "--ttl", "500ms"]);
        let ttl = 2;
        const TTL: u32 = 1;
        const TTL: Duration = Duration::from_secs(1);
        names.hold_lease(&db, Duration::from_secs(1)).await;
        let request = index_lock("one", 1);
    """,
    ("lease", PYTHON): """
        names.lease(address, ttl=1)
        names.lease(address, ttl_seconds=2)
        TTL = 2
    """,
    ("lease", TYPESCRIPT): """
        await names.lease(address, { ttl: 1 });
        await names.lease(address, { ttlSeconds: 2 });
    """,
    ("seed", RUST): """
        let seed = rand::random::<u64>();
        let number = rand::random_range(0..5);
        let mut random = rand::rng();
        use rand::rng;
        let random = StdRng::from_os_rng();
        let random = StdRng::from_rng(&mut other);
        let number = fastrand::u64(..);
        let seed = RandomState::new().hash_one(1);
        let random = StdRng::seed_from_u64(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
    """,
    ("seed", PYTHON): """
        random.seed()
        dice = random.Random()
        number = random.randrange(5)
        random.shuffle(names)
        name = secrets.token_hex(4)
        from random import choice
    """,
    ("seed", TYPESCRIPT): """
        const number = Math.random();
        const number = randomInt(5);
    """,
    ("deadline", RUST): """
        timeout(Duration::from_secs(5), stream.next()).await.unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(5), stream.next()).await.unwrap();
        let last = events.recv_timeout(Duration::from_secs(5)).unwrap();
        timeout(Duration::from_secs(2 * 5), stream.next()).await.unwrap();
        timeout(Duration::new(5, 0), stream.next()).await.unwrap();
        timeout(LONG / 10, stream.next()).await.unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        const SOON: Duration = Duration::from_secs(5); timeout(SOON, stream.next()).await.unwrap();
        let soon = Duration::from_secs(5); timeout(soon, stream.next()).await.unwrap();
        const SECONDS: u64 = 5; timeout(Duration::from_secs(SECONDS), stream.next()).await.unwrap();
        while begun.elapsed() < Duration::from_secs(5) { poll().await; }
        while begun.elapsed().as_secs() < 5 { poll().await; }
        loop { assert!(begun.elapsed() < Duration::from_secs(5)); poll().await; }
        for _ in 0..100 { if holds() { break; } sleep(Duration::from_millis(50)).await; }
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    """,
    ("deadline", PYTHON): """
        deadline = time.monotonic() + 5
        process.wait(timeout=5)
        process.wait(5)
        thread.join(5)
        socket.settimeout(5)
        message = messages.get(timeout=5)
        TIMEOUT = 5
        async with asyncio.timeout(5): pass
        await asyncio.wait_for(stream.next(), 5)
        while time.monotonic() - begun < 5: time.sleep(0.1)
    """,
    ("deadline", CONSOLE): """
        expect(page.get_by_text("mydb")).to_be_visible(timeout=5_000)
        page.wait_for_selector("main", timeout=5000)
    """,
    ("deadline", TYPESCRIPT): """
        const end = Date.now() + 5_000;
        const signal = AbortSignal.timeout(5000);
        test("a name", { timeout: 5_000 }, async () => {});
        const late = new Promise((_, reject) => setTimeout(() => reject(new Error("late")), 5000));
    """,
}
LEFT_ALONE = {
    RUST: """
        assert!(begun.elapsed() >= Duration::from_secs(1));
        while begun.elapsed() < LONG { poll().await; }
        loop { assert!(begun.elapsed() < LONG, "{name}"); sleep(PAUSE).await; }
        timeout(LONG, stream.next()).await.unwrap();
        assert!(timeout(Duration::from_millis(300), stream.next()).await.is_err());
        sleep(PAUSE).await; assert!(!waiting.is_finished());
        tokio::time::pause(); sleep(Duration::from_secs(60)).await; assert!(begun.elapsed() < Duration::from_secs(61));
        // lint: it answers late
        sleep(PAUSE).await; // lint: it answers late
        let request = index_lock("one", 30);
        let clock = TestClock::default(); let request = index_lock("one", 1);
        let random = StdRng::seed_from_u64(seed);
        for n in 0..3 { names.push(n).await; }
    """,
    PYTHON: """
        while not holds(): time.sleep(0.1)
        deadline = time.monotonic() + LONG
        process.wait(timeout=LONG)
        dice = random.Random(7)
        assert time.monotonic() - begun >= 1
    """,
    CONSOLE: """
        expect(page.get_by_text("mydb")).to_be_visible(timeout=180_000)
        expect(page.get_by_text("mydb")).to_be_visible()
    """,
    TYPESCRIPT: """
        while (!holds()) await new Promise((resolve) => setTimeout(resolve, 50));
        test("a name", { timeout }, async () => {});
        const end = Date.now() + LONG;
    """,
}


def broken_into_lines(name, case):
    """As a formatter writes it: a statement a line, blocks indented."""
    depth, lines = 1, []
    if name.endswith(".py"):
        head, colon, body = case.partition(": ")
        if colon and head.startswith(("while ", "for ", "async with ")):
            return f"    {head}:\n        {body}"
        return "\n".join(f"    {part}" for part in case.split("; "))
    if " }" not in case or not case.startswith(("for ", "while ", "loop ", "if ")):
        return "\n".join(f"    {part}" for part in re.sub(r"; (?!//)", ";\n", case).split("\n"))
    for part in case.replace(" {", " {\n", 1).replace("; ", ";\n").replace("{ ", "{\n").replace(" }", "\n}\n").split("\n"):
        part = part.strip()
        if part.startswith("}"):
            depth -= 1
        if part:
            lines.append("    " * depth + part)
        if part.endswith("{"):
            depth += 1
    return "\n".join(lines)


def test_of(name, case):
    body = broken_into_lines(name, case)
    if name.endswith(".rs"):
        return f"#[tokio::test]\nasync fn a_test() {{\n{body}\n}}\n"
    if name.endswith(".py"):
        return f"async def test_a():\n{body}\n"
    return f'test("a", {{ timeout }}, async () => {{\n{body}\n}});\n'


def cases(text):
    return [line for line in textwrap.dedent(text).splitlines() if line]


class Lint(unittest.TestCase):
    def rules(self, name, text):
        found, _ = lint.problems(lint.Source(name, text))
        return {rule for rule, _, _ in found}

    def test_what_depends_on_the_machine_is_found_in_each_form(self):
        for (rule, name), text in FOUND.items():
            for case in cases(text):
                with self.subTest(case):
                    self.assertIn(rule, self.rules(name, test_of(name, case)), test_of(name, case))

    def test_what_does_not_is_left_alone(self):
        for name, text in LEFT_ALONE.items():
            for case in cases(text):
                with self.subTest(case):
                    self.assertEqual(self.rules(name, test_of(name, case)), set(), test_of(name, case))

    def test_only_the_tests_of_a_library_are_read(self):
        text = "fn wait() {\n    sleep(PAUSE);\n}\n\n#[cfg(test)]\n#[allow(clippy::unwrap_used)]\nmod tests {\n    fn waits() {\n        wait();\n    }\n}\n"
        self.assertEqual(self.rules("shared/a/src/lib.rs", text), set())
        self.assertEqual(self.rules("shared/a/src/lib.rs", text.replace("        wait();", "        sleep(PAUSE);")), {"sleep"})

    def test_a_call_that_is_broken_after_its_bracket_is_read_whole(self):
        text = "async fn a() {\n    timeout(\n        Duration::from_secs(5),\n        stream.next(),\n    )\n    .await\n    .unwrap();\n}\n"
        self.assertEqual(self.rules(RUST, text), {"deadline"})
        text = "fn a() {\n    assert!(\n        begun.elapsed() < LIMIT,\n        \"slow\"\n    );\n}\n"
        self.assertEqual(self.rules(RUST, text), {"elapsed"})


if __name__ == "__main__":
    unittest.main()
