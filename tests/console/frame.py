"""The frame of the console: where it is served, keys, other pages, accessibility."""

import re

from playwright.sync_api import expect

from service import Issuer, Proxy, commit
from world import DESK, PHONE, choose, dialog, done, fits, link, open_console, push, record_of, rows, submit, test


@test
def behind_a_base_path_that_streams_nothing_it_polls(w):
    s = w.service()
    s.ledger("mydb", 1)
    proxy = Proxy(s)
    page = w.page()
    foreign = []
    page.on("request", lambda request: foreign.append(request.url) if not request.url.startswith(proxy.url) else None)
    page.goto(f"{proxy.url}/console#/records")
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
    expect(page.get_by_role("link", name="GraphiQL")).to_have_attribute("href", f"{proxy.url}/graphiql")
    page.get_by_role("link", name="API", exact=True).click()
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
    # Records and heads come first, and GraphQL is beside it.
    expect(page.locator(".opblock-tag").first).to_contain_text("records")
    expect(page.locator(".opblock-tag").nth(1)).to_contain_text("pushes")
    expect(page.locator("[id^=operations-pushes]").first).to_have_attribute("id", "operations-pushes-head_push")
    expect(page.get_by_role("link", name="GraphiQL")).to_have_attribute("href", "/names/graphiql")
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
    expect(page.get_by_label("Search")).to_be_focused()
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
def axe_finds_nothing_on_any_page(w):
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
        for button in ("Push head …", "Push index …", "Push status …", "Push config …", "Branch …"):
            page.get_by_role("button", name=button).click()
            w.accessible(page, f"{button}, {name}")
            w.shot(page, f"form-{button.split()[1]}-{name}")
            page.keyboard.press("Escape")
            done(page)
        page.get_by_role("button", name="More actions").click()
        w.accessible(page, f"the menu, {name}")
        w.shot(page, f"menu-{name}")
        page.keyboard.press("Escape")
        for item in ("Protect …", "Retract …", "Reset …", "Purge …"):
            choose(page, item)
            w.accessible(page, f"{item}, {name}")
            page.keyboard.press("Escape")
            done(page)
        open_console(page, s, "#/records?view=tree&open=tenant%2F")
        expect(page.get_by_role("treegrid")).to_be_visible()
        w.accessible(page, f"the tree, {name}")
        fits(page)
        w.shot(page, f"tree-{name}")
        open_console(page, s, "#/overview")
        expect(page.get_by_role("region", name="Recent changes").get_by_role("link").nth(2)).to_be_visible()
        w.accessible(page, f"the overview, {name}")
        fits(page)
        w.shot(page, f"overview-{name}")
        page.keyboard.press("?")
        expect(dialog(page)).to_contain_text("Next row")
        w.accessible(page, f"the keys, {name}")
        page.keyboard.press("Escape")
        open_console(page, s, "#/changes")
        expect(rows(page).first).to_be_visible()
        w.accessible(page, f"changes, {name}")
        fits(page)
        w.shot(page, f"changes-{name}")
