"""A browser, the services in it, and what the tests of the console have in common."""

import pathlib
import tempfile
import time
import urllib.parse

from playwright.sync_api import expect

from service import LONG, Provider, Service

TESTS, REPORTS = [], []
PHONE = {"width": 390, "height": 780}
DESK = {"width": 1280, "height": 860}


def test(function):
    TESTS.append(function)
    return function


def report(function):
    """Prints figures, which are no verdict: they depend on the machine."""
    REPORTS.append(function)
    return function


class World:
    """A browser, services, and what went wrong in their pages."""

    def __init__(self, browser, program, axe, shots):
        self.browser, self.program, self.axe, self.shots = browser, program, axe, pathlib.Path(shots)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="console-test-"))
        self.services, self.providers, self.contexts, self.faults = [], [], [], []

    def service(self, *arguments, **options):
        service = Service(self.program, self.folder / str(len(self.services)), *arguments, **options)
        self.services.append(service)
        return service

    def provider(self, *arguments, **options):
        provider = Provider(self.folder, *arguments, **options)
        self.providers.append(provider)
        return provider

    def page(self, viewport=DESK, scheme="light", expected=()):
        """A page of a user of their own. `expected` are texts of console messages that are part of the test."""
        context = self.browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        context.set_default_timeout(60_000)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('violates the policy: ' + e.violatedDirective));"
        )
        self.contexts.append(context)
        page = context.new_page()

        def message(it):
            known = any(text in it.text for text in expected) or "Failed to load resource" in it.text
            if it.type in ("error", "warning") and not known:
                self.faults.append(it.text)

        page.on("console", message)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: (self.faults.append("a dialog: " + dialog.message), dialog.dismiss()))
        return page

    def shot(self, page, name):
        page.screenshot(path=self.shots / f"{name}.png")

    def accessible(self, page, what):
        """Fails on every finding of axe."""
        found = page.evaluate(self.axe + "; axe.run(document, {resultTypes: ['violations']})")
        bad = [
            f"{it['id']} ({it['impact']}): {it['help']}: " + "; ".join(f"{node['html'][:150]} {node['failureSummary']}" for node in it["nodes"][:3])
            for it in found["violations"]
        ]
        assert not bad, f"{what}: {bad}"

    def end(self):
        for context in self.contexts:
            context.close()
        for service in self.services:
            service.stop()
        for provider in self.providers:
            provider.stop()
        assert not self.faults, self.faults


def link(page):
    return page.locator("[data-test=link]")


def open_console(page, service, fragment="#/records", live=True):
    page.goto(f"{service.url}/console{fragment}")
    if live:
        expect(link(page)).to_contain_text("Live")


def record_of(address):
    return "#/record/" + urllib.parse.quote(address, safe="")


def push(page, what):
    page.get_by_role("button", name=f"Push {what} …").click()


def choose(page, name):
    """Chooses a rare action of a record, from its menu."""
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("menuitem", name=name, exact=True).click()


def create(page, what):
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("menuitem", name=f"New {what} …").click()


def dialog(page):
    return page.get_by_role("dialog")


def submit(page, name):
    dialog(page).get_by_role("button", name=name, exact=True).click()


def done(page):
    expect(dialog(page)).to_have_count(0)


def wait_until(page, condition, what):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, f"not within {LONG} seconds: {what}"
        page.wait_for_timeout(20)


def rows(page):
    return page.locator(".list-space .row")


def fits(page):
    """Nothing is wider than the window."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{wide} pixels too wide"


def create_many(service, count):
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: service.ledger(f"r/{n:05}"), range(count)))


def push_many(service, count, addresses=16):
    """Pushes heads of some ledgers, which it creates, many times: each push is a change."""
    import concurrent.futures

    def push(n):
        name = f"busy/{n}"
        service.ledger(name)
        for t in range(1, count // addresses + 1):
            service.push_head(name, t)

    with concurrent.futures.ThreadPoolExecutor(addresses) as pool:
        list(pool.map(push, range(addresses)))
