"""The console in a real browser: every page and every action, against a real service.

Usage: console.py PROGRAM AXE SCREENSHOTS [WORDS…]. PROGRAM is the `nameservice` binary, AXE the file axe.min.js, SCREENSHOTS a
folder; with WORDS only the tests whose names contain one of them run, and the reports, which print figures and run only if they are
named. CHROMIUM names the browser.
"""

import contextlib
import os
import pathlib
import sys
import time
import traceback

from playwright.sync_api import expect, sync_playwright

import frame  # noqa: F401: each holds tests
import reading  # noqa: F401
import signing  # noqa: F401
import watching  # noqa: F401
import writing  # noqa: F401
from world import REPORTS, TESTS, World


def main():
    program, axe, shots, *words = sys.argv[1:]
    os.makedirs(shots, exist_ok=True)
    axe = pathlib.Path(axe).read_text()
    wanted = [it for it in TESTS + REPORTS if any(word in it.__name__ for word in words)] if words else TESTS
    assert wanted, "no test has such a name"
    failed = []
    # A machine that does other things at the same time may take longer than five seconds.
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        for it in wanted:
            world, started = World(browser, program, axe, shots), time.monotonic()
            problem = None
            try:
                it(world)
            except Exception as error:  # noqa: BLE001: each test is reported
                problem = error
                for n, context in enumerate(world.contexts):
                    for page in context.pages:
                        with contextlib.suppress(Exception):
                            world.shot(page, f"failed-{it.__name__}-{n}")
            try:
                world.end()
            except Exception as error:  # noqa: BLE001
                problem = problem or error
            print(f"{'FAILED' if problem else 'ok':<7}{it.__name__.replace('_', ' ')} ({time.monotonic() - started:.1f} s)", flush=True)
            if problem:
                print("".join(traceback.format_exception(problem)), flush=True)
                failed.append(it.__name__)
        browser.close()
    if failed:
        sys.exit(f"{len(failed)} of {len(wanted)} tests failed: {' '.join(failed)}")


main()
