"""The console in a real browser: every page and every action, against a real service.

Usage: console.py PROGRAM AXE SCREENSHOTS [WORDS…]. PROGRAM is the `nameservice` binary, AXE the file axe.min.js, SCREENSHOTS a
folder; with WORDS only the tests whose names contain one of them run. CHROMIUM names the browser.
"""

import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import urllib.parse

from playwright.sync_api import expect, sync_playwright

from service import Issuer, Proxy, Service, commit

TESTS = []
PHONE = {"width": 390, "height": 780}
DESK = {"width": 1280, "height": 860}
RLM = "\u200f"


def test(function):
    TESTS.append(function)
    return function


class World:
    """A browser, services, and what went wrong in their pages."""

    def __init__(self, browser, program, axe, shots):
        self.browser, self.program, self.axe, self.shots = browser, program, axe, pathlib.Path(shots)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="console-test-"))
        self.services, self.contexts, self.faults = [], [], []

    def service(self, *arguments):
        service = Service(self.program, self.folder / str(len(self.services)), *arguments)
        self.services.append(service)
        return service

    def page(self, viewport=DESK, scheme="light", expected=()):
        """A page of a user of their own. `expected` are texts of console messages that are part of the test."""
        context = self.browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        context.set_default_timeout(10_000)
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
        """Fails on every finding of axe that is serious or critical."""
        page.add_script_tag = None
        found = page.evaluate(self.axe + "; axe.run(document, {resultTypes: ['violations']})")
        bad = [
            f"{it['id']} ({it['impact']}): {it['help']}: " + "; ".join(f"{node['html'][:150]} {node['failureSummary']}" for node in it["nodes"][:3])
            for it in found["violations"]
            if it["impact"] in ("serious", "critical")
        ]
        assert not bad, f"{what}: {bad}"

    def end(self):
        for context in self.contexts:
            context.close()
        for service in self.services:
            service.stop()
        assert not self.faults, self.faults


def link(page):
    return page.locator("[data-test=link]")


def open_console(page, service, fragment="", live=True):
    page.goto(f"{service.url}/console{fragment}")
    if live:
        expect(link(page)).to_contain_text("Live")


def record_of(address):
    return "#/record/" + urllib.parse.quote(address, safe="")


def push(page, what):
    page.get_by_role("button", name=f"Push {what} …").click()


def dialog(page):
    return page.get_by_role("dialog")


def submit(page, name):
    dialog(page).get_by_role("button", name=name, exact=True).click()


def done(page):
    expect(dialog(page)).to_have_count(0)


def rows(page):
    return page.locator(".list-space .row")


def fits(page):
    """Nothing is wider than the window."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{wide} pixels too wide"


@test
def records_are_searched_as_one_types_and_filtered(w):
    s = w.service()
    for name in ("mydb", "books", "books:draft", "tenant/a/orders"):
        s.ledger(name, 1)
    s.must("PUT", "graph-sources/search", {"source_type": "f:Bm25Index", "config": {}, "dependencies": ["books"]})
    s.must("PUT", "statuses/books", {"expected": {"v": 1}, "new": {"payload": {"state": "error"}}})
    s.must("POST", "retractions/tenant/a/orders", {})
    page = w.page()
    open_console(page, s)
    expect(rows(page)).to_have_count(4)
    page.keyboard.press("/")
    page.keyboard.type("BOOK")
    expect(rows(page)).to_have_count(2)
    page.get_by_label("State").select_option("error")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("State").select_option("")
    page.get_by_label("Search").fill("")
    page.get_by_label("Kind").select_option("graph_source")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Kind").select_option("")
    page.get_by_label("Type").select_option("f:Bm25Index")
    expect(rows(page)).to_have_text([re.compile("search:main")])
    page.get_by_label("Type").select_option("")
    page.get_by_label("retracted too").check()
    expect(rows(page)).to_have_count(5)
    # What the service finds: a type and a state.
    page.get_by_label("Search").fill("BM25 ready")
    expect(rows(page)).to_have_text([re.compile("search:main")])
    page.get_by_label("Search").fill("nothing like it")
    expect(page.get_by_text("No record matches.")).to_be_visible()


@test
def what_changes_is_shown_without_a_reload(w):
    s = w.service()
    s.ledger("mydb", 1)
    page, feed, one = w.page(), w.page(), w.page()
    open_console(page, s)
    open_console(feed, s, "#/changes")
    open_console(one, s, record_of("mydb:main"))
    expect(one.locator("[data-test=mark-head]")).to_have_text("t 1")
    s.push_head("mydb", 2)
    expect(page.get_by_role("row", name="mydb:main")).to_contain_text("2")
    expect(one.locator("[data-test=mark-head]")).to_have_text("t 2")
    expect(rows(feed).first).to_contain_text("1 → 2")
    position = s.must("GET", "changes?after=0")["position"]
    expect(feed.locator("[data-test=position]")).to_have_text(str(position))
    expect(feed.locator("[data-test=lag]")).to_contain_text("ms")
    s.ledger("another")
    expect(page.get_by_role("row", name="another:main")).to_be_visible()
    s.must("DELETE", "records/another")
    expect(page.get_by_role("row", name="another:main")).to_have_count(0)
    s.must("PUT", "leases/mydb", {"name": "index_lock", "holder": "indexer-7", "ttl_seconds": 2})
    expect(one.locator("[data-test=holder]")).to_have_text("indexer-7")
    expect(one.get_by_role("timer")).to_have_text(re.compile(r"0:0\d left"))
    expect(one.get_by_role("region", name="Lease")).to_contain_text("expired")


@test
def the_feed_is_filtered_paused_and_read_backwards(w):
    s = w.service()
    for n in range(3):
        s.ledger(f"db{n}", 1)
    s.push_head("db1", 2)
    page = w.page()
    open_console(page, s, "#/changes")
    expect(rows(page)).to_have_count(10)
    page.get_by_role("combobox", name="Concern").select_option("head")
    expect(rows(page)).to_have_count(4)
    page.get_by_label("Address").fill("db1:*")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("combobox", name="Change").select_option("created")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("combobox", name="Change").select_option("")
    page.get_by_role("button", name="Pause").click()
    s.push_head("db1", 3)
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Resume").click()
    expect(rows(page)).to_have_count(3)
    rows(page).first.get_by_role("button").click()
    expect(dialog(page)).to_contain_text('"watermark": 3')
    page.keyboard.press("Escape")
    done(page)


@test
def a_record_shows_its_branches_dependents_and_the_difference_of_two_entries(w):
    s = w.service()
    s.ledger("mydb", 1)
    s.must("POST", "branches", {"name": "mydb", "branch": "dev", "source": "main"})
    s.must("POST", "branches", {"name": "mydb", "branch": "fix", "source": "dev"})
    s.must("PUT", "graph-sources/search", {"source_type": "f:Bm25Index", "config": {"a": 1, "b": 2}, "dependencies": ["mydb"]})
    for v, config in ((1, {"a": 1, "b": 3, "c": [1]}), (2, {"a": 1})):
        body = {"source_type": "f:Bm25Index", "config": config, "dependencies": ["mydb"], "expected_v": v}
        s.must("PUT", "graph-sources/search", body)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    branches = page.get_by_role("region", name="Branches")
    expect(branches.get_by_role("link")).to_have_text(["dev", "fix"])
    expect(branches.locator("ul ul ul")).to_contain_text("fix")
    page.get_by_role("region", name="Dependents").get_by_role("link", name="search:main").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("search:main")
    assert page.title().startswith("search:main")
    history = page.get_by_role("region", name="History")
    history.get_by_label("Concern").select_option("config")
    entries = history.get_by_role("checkbox")
    expect(entries).to_have_count(3)
    entries.nth(1).check()
    entries.nth(2).check()
    changed = page.get_by_role("region", name="Difference").locator("tbody tr")
    expect(changed).to_have_text([re.compile(r"value\.b.*changed.*2.*3"), re.compile(r"value\.c.*added"), re.compile("watermark")])
    w.accessible(page, "a history")
    w.shot(page, "history")


@test
def every_form_writes(w):
    s = w.service()
    page = w.page()
    open_console(page, s)
    page.get_by_role("button", name="New ledger …").click()
    dialog(page).get_by_label("Address").fill("mydb")
    dialog(page).get_by_label("Config").fill('{"index_threshold": 5}')
    submit(page, "Create")
    done(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("mydb:main")

    push(page, "head")
    dialog(page).get_by_label("Id").fill(commit(1))
    submit(page, "Push head")
    done(page)
    push(page, "index")
    dialog(page).get_by_label("Id").fill(commit("i"))
    submit(page, "Push index")
    done(page)
    push(page, "status")
    dialog(page).get_by_label("State").fill("syncing")
    dialog(page).get_by_label("Metadata").fill('{"progress": 0.5}')
    submit(page, "Push status")
    done(page)
    push(page, "config")
    dialog(page).get_by_label("Config").fill('{"index_threshold": 7}')
    submit(page, "Push config")
    done(page)
    record = s.record("mydb")
    assert record["head"] == {"id": commit(1), "t": 1}, record
    assert record["index"]["id"] == commit("i") and record["index"]["t"] == 1, record
    assert record["status"] == {"v": 2, "payload": {"state": "syncing", "progress": 0.5}}, record
    assert record["config"] == {"v": 2, "payload": {"index_threshold": 7}}, record

    # A number that the browser's own cannot hold survives that a form reads, changes and writes it.
    snapshot = 8293847239847239847
    s.must("PUT", "configs/mydb", {"expected": {"v": 2}, "new": {"payload": {"snapshot": snapshot}}})
    expect(page.locator("[data-test=mark-config]")).to_have_text("v 3")
    push(page, "config")
    config = dialog(page).get_by_label("Config")
    config.fill(config.input_value().replace("snapshot", "renamed"))
    submit(page, "Push config")
    done(page)
    assert s.record("mydb")["config"] == {"v": 4, "payload": {"renamed": snapshot}}, s.record("mydb")

    page.get_by_role("button", name="Branch …").click()
    dialog(page).get_by_label("Name of the branch").fill("dev")
    submit(page, "Create")
    done(page)
    expect(page.get_by_role("region", name="Branches").get_by_role("link", name="dev")).to_be_visible()
    assert s.record("mydb:dev")["head"]["t"] == 1

    open_console(page, s)
    page.get_by_role("button", name="New graph source …").click()
    dialog(page).get_by_label("Address").fill("search")
    dialog(page).get_by_label("Depends on").fill("mydb\n")
    submit(page, "Create")
    done(page)
    push(page, "config")
    dialog(page).get_by_label("Config").fill('{"k": 1}')
    submit(page, "Push config")
    done(page)
    assert s.record("search")["config"] == {"v": 2, "payload": {"k": 1}}
    assert s.record("search")["dependencies"] == ["mydb:main"]

    # A rejection is shown with the records that it names, and nothing changes.
    open_console(page, s, record_of("mydb:main"))
    page.get_by_role("button", name="Retract …").click()
    submit(page, "Retract")
    expect(dialog(page).get_by_role("alert")).to_contain_text("search:main")
    submit(page, "Cancel")

    open_console(page, s, record_of("mydb:dev"))
    page.get_by_role("button", name="Retract …").click()
    dialog(page).get_by_label("Reason").fill("moved")
    submit(page, "Retract")
    done(page)
    assert s.record("mydb:dev")["retracted"] and s.record("mydb:dev")["status"]["payload"]["reason"] == "moved"
    page.get_by_role("button", name="Restore …").click()
    submit(page, "Restore")
    done(page)
    assert not s.record("mydb:dev")["retracted"]
    page.get_by_role("button", name="Reset …").click()
    dialog(page).get_by_label("Id of the head").fill(commit("r"))
    dialog(page).get_by_label("t of the head").fill("1")
    dialog(page).get_by_label("Id of the index").fill("")
    dialog(page).get_by_label("t of the index").fill("0")
    submit(page, "Reset")
    done(page)
    assert s.record("mydb:dev")["head"] == {"id": commit("r"), "t": 1}

    # A protected record stays until its protection is taken away.
    page.get_by_role("button", name="Protect …", exact=True).click()
    submit(page, "Protect")
    done(page)
    expect(page.get_by_text("protected", exact=True)).to_be_visible()
    assert s.record("mydb:dev")["protected"] is True
    page.get_by_role("button", name="Purge …").click()
    dialog(page).get_by_label("Type the address").fill("mydb:dev")
    submit(page, "Purge")
    expect(dialog(page).get_by_role("alert")).to_contain_text("The record is protected")
    submit(page, "Cancel")
    page.get_by_role("button", name="Unprotect …").click()
    submit(page, "Unprotect")
    done(page)
    assert "protected" not in s.record("mydb:dev")

    page.get_by_role("button", name="Purge …").click()
    purge = dialog(page).get_by_role("button", name="Purge", exact=True)
    expect(purge).to_be_disabled()
    dialog(page).get_by_label("Type the address").fill("mydb:de")
    expect(purge).to_be_disabled()
    dialog(page).get_by_label("Type the address").fill("mydb:dev")
    purge.click()
    done(page)
    expect(page.get_by_text("There is no record under this address")).to_be_visible()
    assert s.call("GET", "records/mydb:dev").status == 404


@test
def input_that_cannot_be_sent_is_rejected_with_its_reason_and_kept(w):
    s = w.service()
    s.ledger("mydb", 1)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    push(page, "config")
    dialog(page).get_by_label("Config").fill("{not json")
    submit(page, "Push config")
    expect(dialog(page).get_by_role("alert")).to_contain_text("Config is not JSON")
    expect(dialog(page).get_by_label("Config")).to_have_value("{not json")
    submit(page, "Cancel")
    push(page, "head")
    dialog(page).get_by_label("Id").fill("no content id")
    submit(page, "Push head")
    expect(dialog(page).get_by_role("alert")).to_contain_text("new.id")
    expect(dialog(page).get_by_label("Id")).to_have_value("no content id")
    assert s.record("mydb")["head"]["t"] == 1


@test
def of_two_browsers_one_wins_and_the_other_is_shown_both_values(w):
    s = w.service()
    s.ledger("mydb", 1)
    pages = [w.page(), w.page()]
    for n, page in enumerate(pages):
        # Without events, neither page learns of the other's push before its own is judged.
        page.route("**/v1/events*", lambda route: route.abort())
        open_console(page, s, record_of("mydb:main"), live=False)
        push(page, "head")
        dialog(page).get_by_label("Id").fill(commit(f"browser {n}"))
    with held_back(pages):
        for page in pages:
            submit(page, "Push head")
    deadline = time.monotonic() + 10
    while sum(dialog(page).count() == 0 for page in pages) != 1 and time.monotonic() < deadline:
        pages[0].wait_for_timeout(50)
    winner = next(n for n, page in enumerate(pages) if dialog(page).count() == 0)
    loser = pages[1 - winner]
    stored = {"id": commit(f"browser {winner}"), "t": 2}
    assert s.record("mydb")["head"] == stored
    overtaken = dialog(loser).get_by_role("alert", name="Overtaken")
    expect(overtaken).to_contain_text("nothing was written")
    expect(overtaken).to_contain_text(commit(f"browser {winner}"))
    expect(overtaken).to_contain_text(commit(f"browser {1 - winner}"))
    w.accessible(loser, "an overtaken form")
    w.shot(loser, "overtaken")
    # What was typed is still there, nothing was sent again, and the user decides.
    expect(dialog(loser).get_by_label("Id")).to_have_value(commit(f"browser {1 - winner}"))
    expect(dialog(loser).get_by_role("button", name="Push head", exact=True)).to_be_disabled()
    assert s.record("mydb")["head"] == stored
    dialog(loser).get_by_role("button", name="Keep mine").click()
    dialog(loser).get_by_label("t", exact=True).fill("3")
    submit(loser, "Push head")
    done(loser)
    assert s.record("mydb")["head"] == {"id": commit(f"browser {1 - winner}"), "t": 3}


@contextlib.contextmanager
def held_back(pages):
    """Holds the pushes of all pages until each has sent its own."""
    held = []
    for page in pages:
        page.route("**/v1/heads/**", lambda route: held.append(route))
    yield
    deadline = time.monotonic() + 10
    while len(held) < len(pages) and time.monotonic() < deadline:
        pages[0].wait_for_timeout(20)
    assert len(held) == len(pages), "each browser pushes once"
    for route in held:
        route.continue_()
    for page in pages:
        page.unroute("**/v1/heads/**")


@test
def what_happens_meanwhile_does_not_touch_what_is_typed(w):
    s = w.service()
    s.ledger("mydb", 1)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    push(page, "config")
    field = dialog(page).get_by_label("Config")
    field.fill('{"mine": 1')
    field.press("End")
    for n in range(5):
        s.push_head("mydb", n + 2)
    s.must("PUT", "configs/mydb", {"expected": {"v": 0}, "new": {"payload": {"theirs": 1}}})
    overtaken = dialog(page).get_by_role("alert", name="Overtaken")
    expect(overtaken).to_contain_text("It has changed since you opened this form")
    expect(overtaken).to_contain_text("theirs")
    expect(field).to_have_value('{"mine": 1')
    expect(field).to_be_focused()
    page.keyboard.type("}")
    expect(field).to_have_value('{"mine": 1}')
    dialog(page).get_by_role("button", name="Keep mine").click()
    submit(page, "Push config")
    done(page)
    assert s.record("mydb")["config"] == {"v": 2, "payload": {"mine": 1}}


@test
def an_action_on_a_record_that_has_moved_meanwhile_is_not_sent(w):
    s = w.service()
    s.ledger("mydb", 1)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    page.get_by_role("button", name="Purge …").click()
    dialog(page).get_by_label("Type the address").fill("mydb:main")
    pushed = []

    def overtake(route):
        # When the form is sent, the page reads the record again, which changes at that moment.
        if not pushed:
            pushed.append(s.push_head("mydb", 2))
        route.continue_()

    page.route("**/v1/records/mydb*", overtake)
    submit(page, "Purge")
    overtaken = dialog(page).get_by_role("alert", name="Overtaken")
    expect(overtaken).to_contain_text("nothing was written")
    expect(overtaken).to_contain_text('"t": 2')
    assert s.record("mydb")["head"]["t"] == 2
    expect(dialog(page).get_by_role("button", name="Purge", exact=True)).to_be_disabled()


@test
def a_lost_answer_is_asked_for_again_under_the_same_key(w):
    s = w.service()
    s.ledger("mydb", 1)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    push(page, "head")
    dialog(page).get_by_label("Id").fill(commit(2))
    keys = []

    def lose(route):
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/heads/**", lose)
    submit(page, "Push head")
    expect(dialog(page)).to_contain_text("Sending it again is safe")
    # By then the page has heard of its own write.
    expect(page.locator("[data-test=mark-head]")).to_have_text("t 2")
    submit(page, "Send again")
    done(page)
    assert len(keys) == 2 and keys[0] == keys[1], keys
    assert s.record("mydb")["head"] == {"id": commit(2), "t": 2}


@test
def after_the_service_restarts_the_page_goes_on_where_it_was(w):
    s = w.service()
    s.ledger("mydb", 1)
    page, feed = w.page(expected=["ERR_CONNECTION"]), w.page(expected=["ERR_CONNECTION"])
    open_console(page, s, record_of("mydb:main"))
    open_console(feed, s, "#/changes")
    s.push_head("mydb", 2)
    expect(page.locator("[data-test=mark-head]")).to_have_text("t 2")
    s.kill()
    expect(link(page)).to_contain_text("Disconnected")
    s.start()
    s.push_head("mydb", 3)
    expect(link(page)).to_contain_text("Live", timeout=20_000)
    expect(page.locator("[data-test=mark-head]")).to_have_text("t 3", timeout=20_000)
    expect(link(feed)).to_contain_text("Live", timeout=20_000)
    feed.get_by_label("Concern").select_option("head")
    expect(rows(feed)).to_have_count(3)
    expect(rows(feed).first).to_contain_text("2 → 3")


@test
def hostile_values_are_text(w):
    s = w.service()
    markup = "<img src=x onerror=alert(1)>"
    names = [
        markup.replace("/", ""),
        "'\"><script>alert(1)<script>",
        f"\u202eevil\u202c {RLM}שלום",
        "a" * 994 + ":main",
        "javascript:main".replace(":main", "") + ":alert(1)",
        "${alert(1)} {{7*7}} </textarea>".replace("</", "<"),
    ]
    for name in names:
        s.ledger(name, 1)
    value = {"state": "<b>ready</b>", markup: {"<svg onload=alert(1)>": ["</pre><script>alert(1)</script>", RLM + "מימין"]}}
    address = s.record(names[0])["address"]
    path = urllib.parse.quote(address)
    s.must("PUT", f"statuses/{path}", {"expected": {"v": 1}, "new": {"payload": value}})
    s.must("PUT", f"configs/{path}", {"expected": {"v": 0}, "new": {"payload": {"__proto__": 1, "constructor": markup, "x": markup}}})
    s.must("PUT", f"leases/{path}", {"name": "index_lock", "holder": markup})
    page = w.page()
    open_console(page, s)
    expect(rows(page)).to_have_count(len(names))
    for name in names:
        full = name if ":" in name else name + ":main"
        expect(page.get_by_role("link", name=full, exact=True)).to_be_visible()
    fits(page)
    w.shot(page, "hostile")
    page.get_by_role("link", name=address, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(address)
    expect(page.locator("[data-test=holder]")).to_have_text(markup)
    expect(page.get_by_role("region", name="Status")).to_contain_text("</pre><script>")
    fits(page)
    open_console(page, s, "#/changes")
    expect(rows(page).first).to_contain_text(address)
    fits(page)
    for name in names:
        full = name if ":" in name else name + ":main"
        for viewport in (DESK, PHONE):
            page.set_viewport_size(viewport)
            open_console(page, s, record_of(full))
            expect(page.get_by_role("heading", level=1)).to_have_text(full)
            fits(page)
    page.goto(f"{s.url}/console#/record/%E0%A4%A")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.locator("img, script:not([src]), svg, iframe").count() == 0


@test
def ten_thousand_records_draw_only_what_is_in_sight(w):
    s = w.service()
    create_many(s, 10_000)
    page = w.page()
    open_console(page, s)
    expect(page.get_by_text("10000 of 10000 records")).to_be_visible(timeout=60_000)
    drawn = page.evaluate("document.querySelectorAll('*').length")
    assert drawn < 1500, f"{drawn} elements"
    page.get_by_role("link", name="r/00000:main", exact=True).focus()
    page.keyboard.press("End")
    expect(page.get_by_role("link", name="r/09999:main", exact=True)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("link", name="r/09998:main", exact=True)).to_be_focused()
    # Keys in quick succession: none is lost.
    for key in ("PageUp", "Home", "End", "Home"):
        page.keyboard.press(key)
    expect(page.get_by_role("link", name="r/00000:main", exact=True)).to_be_focused()
    page.get_by_label("Search").fill("r/0777")
    expect(rows(page)).to_have_count(10)
    frames = page.evaluate(SCROLL)
    print(f"    scrolling through 10,000 records: median frame {frames['median']:.0f} ms, longest {frames['longest']:.0f} ms")
    s.push_head("r/07773", 1)
    expect(page.get_by_role("row", name="r/07773:main").get_by_role("cell").nth(3)).to_have_text("1")


SCROLL = """async () => {
  const box = document.querySelector('.list-box');
  const input = document.querySelector('input[type=search]');
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  set.call(input, ''); input.dispatchEvent(new Event('input', {bubbles: true}));
  await new Promise((done) => setTimeout(done, 300));
  const frames = []; let last = performance.now();
  for (let n = 0; n < 120; n += 1) {
    box.scrollTop = (box.scrollHeight / 120) * n;
    await new Promise(requestAnimationFrame);
    const now = performance.now(); frames.push(now - last); last = now;
  }
  set.call(input, 'r/0777'); input.dispatchEvent(new Event('input', {bubbles: true}));
  frames.sort((a, b) => a - b);
  return {median: frames[60], longest: frames[119]};
}"""


def create_many(service, count):
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: service.ledger(f"r/{n:05}"), range(count)))


@test
def a_token_is_kept_in_memory_only_and_gives_no_more_than_the_api(w):
    issuer = Issuer(w.folder)
    s = w.service("--jwks", str(issuer.file), "--any-issuer", "--any-audience")
    s.token = issuer.token("nameservice:admin")
    s.ledger("mydb", 1)
    s.ledger("secret", 1)
    reader = issuer.token("nameservice:read", **{"nameservice:addresses": ["mydb:*"]})
    page = w.page()
    open_console(page, s, live=False)
    expect(page.get_by_role("alert")).to_contain_text("send a token")
    w.accessible(page, "without a token")
    page.get_by_role("button", name="Enter a token").click()
    w.accessible(page, "the token's dialog")
    dialog(page).get_by_label("Bearer token").fill("not.a.token")
    submit(page, "Use it")
    expect(link(page)).to_contain_text("A token is required")
    page.get_by_role("button", name="Enter a token").click()
    dialog(page).get_by_label("Bearer token").fill(reader)
    submit(page, "Use it")
    expect(link(page)).to_contain_text("Live")
    expect(rows(page)).to_have_text([re.compile("mydb:main")])
    s.push_head("secret", 2)
    s.push_head("mydb", 2)
    expect(page.get_by_role("row", name="mydb:main")).to_contain_text("2")
    assert "secret" not in page.content()
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state])")
    assert reader not in kept and "eyJ" not in kept, kept
    page.get_by_role("link", name="mydb:main").click()
    push(page, "head")
    dialog(page).get_by_label("Id").fill(commit(3))
    submit(page, "Push head")
    expect(dialog(page).get_by_role("alert")).to_contain_text("nameservice:write")
    assert s.record("mydb")["head"]["t"] == 2
    page.reload()
    expect(link(page)).to_contain_text("A token is required")


@test
def behind_a_base_path_that_streams_nothing_it_polls(w):
    s = w.service()
    s.ledger("mydb", 1)
    proxy = Proxy(s)
    page = w.page()
    foreign = []
    page.on("request", lambda request: foreign.append(request.url) if not request.url.startswith(proxy.url) else None)
    page.goto(f"{proxy.url}/console")
    expect(link(page)).to_have_text(re.compile("Live, by long polls"))
    expect(rows(page)).to_have_count(1)
    s.push_head("mydb", 2)
    expect(page.get_by_role("row", name="mydb:main")).to_contain_text("2")
    page.get_by_role("link", name="mydb:main").click()
    push(page, "head")
    dialog(page).get_by_label("Id").fill(commit(3))
    submit(page, "Push head")
    done(page)
    expect(page.locator("[data-test=mark-head]")).to_have_text("t 3")
    page.get_by_role("link", name="API").click()
    page.wait_for_url(f"{proxy.url}/v1/docs")
    assert not foreign, foreign
    proxy.stop()


@test
def the_description_of_the_api_sends_requests_with_a_token_and_loads_nothing_from_elsewhere(w):
    issuer = Issuer(w.folder)
    s = w.service("--jwks", str(issuer.file), "--any-issuer", "--any-audience", "--base-path", "/names")
    s.token = issuer.token("nameservice:admin")
    page = w.page()
    foreign = []
    page.on("request", lambda request: foreign.append(request.url) if not request.url.startswith((s.url, "data:")) else None)
    page.goto(f"{s.url}/names/v1/docs")
    expect(page.get_by_role("heading", name="Nameservice")).to_be_visible()
    operation = page.locator("#operations-records-record_list")
    operation.scroll_into_view_if_needed()
    operation.get_by_role("button").first.click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table tr.response .response-col_status").first).to_contain_text("401")
    page.get_by_role("button", name="Authorize").first.click()
    page.locator(".auth-container input").fill(issuer.token("nameservice:read"))
    page.locator(".auth-container").get_by_role("button", name="Apply credentials").click()
    page.get_by_role("button", name="Close").first.click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table tr.response .response-col_status").first).to_contain_text("200")
    expect(operation.locator(".live-responses-table")).to_contain_text("records")
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert "eyJ" not in kept, kept
    w.shot(page, "api")
    assert not foreign, foreign


@test
def a_browser_at_the_root_is_led_to_the_console(w):
    s = w.service()
    page = w.page()
    for path in ("/", "/console/"):
        page.goto(s.url + path)
        assert page.url.startswith(f"{s.url}/console"), page.url
        expect(link(page)).to_contain_text("Live")


@test
def everything_is_reached_by_keyboard(w):
    s = w.service()
    s.ledger("mydb", 1)
    page = w.page()
    open_console(page, s)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("my")
    expect(page.get_by_label("Search")).to_have_value("my")
    page.get_by_role("link", name="mydb:main").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    button = page.get_by_role("button", name="Push head …")
    button.focus()
    page.keyboard.press("Enter")
    expect(dialog(page)).to_be_visible()
    for _ in range(12):
        page.keyboard.press("Tab")
        inside = page.evaluate("document.activeElement === document.body || Boolean(document.activeElement.closest('dialog'))")
        assert inside, "the focus left the dialog"
    page.keyboard.press("Escape")
    done(page)
    expect(button).to_be_focused()


@test
def axe_finds_nothing_serious_on_any_page(w):
    s = w.service()
    s.ledger("mydb", 4)
    s.must("PUT", "indexes/mydb", {"new": {"id": commit("i"), "t": 3}})
    s.must("POST", "branches", {"name": "mydb", "branch": "dev", "source": "main"})
    s.must("PUT", "graph-sources/search", {"source_type": "f:Bm25Index", "config": {"field": "name"}, "dependencies": ["mydb"]})
    s.must("PUT", "configs/mydb", {"expected": {"v": 0}, "new": {"payload": {"index_threshold": 5}}})
    s.must("PUT", "leases/mydb", {"name": "index_lock", "holder": "indexer-7f3a", "target_t": 4})
    for n in range(30):
        s.ledger(f"tenant/{n:02}/orders", n)
    s.must("POST", "retractions/tenant/07/orders", {"reason": "moved"})
    for name, viewport, scheme in (("light", DESK, "light"), ("dark", DESK, "dark"), ("phone", PHONE, "dark")):
        page = w.page(viewport, scheme)
        open_console(page, s)
        page.get_by_label("retracted too").check()
        expect(rows(page).first).to_be_visible()
        w.accessible(page, f"records, {name}")
        fits(page)
        w.shot(page, f"records-{name}")
        open_console(page, s, record_of("mydb:main"))
        expect(page.get_by_role("region", name="History").get_by_role("checkbox").first).to_be_visible()
        w.accessible(page, f"a record, {name}")
        fits(page)
        w.shot(page, f"record-{name}")
        for button in ("Push head …", "Push index …", "Push status …", "Push config …", "Branch …", "Retract …", "Reset …", "Purge …"):
            page.get_by_role("button", name=button).click()
            w.accessible(page, f"{button}, {name}")
            page.keyboard.press("Escape")
            done(page)
        open_console(page, s, "#/changes")
        expect(rows(page).first).to_be_visible()
        w.accessible(page, f"changes, {name}")
        fits(page)
        w.shot(page, f"changes-{name}")


def main():
    program, axe, shots, *words = sys.argv[1:]
    os.makedirs(shots, exist_ok=True)
    axe = pathlib.Path(axe).read_text()
    wanted = [it for it in TESTS if not words or any(word in it.__name__ for word in words)]
    assert wanted, "no test has such a name"
    failed = []
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
                print(f"    {problem}", flush=True)
                failed.append(it.__name__)
        browser.close()
    if failed:
        sys.exit(f"{len(failed)} of {len(wanted)} tests failed")


main()
