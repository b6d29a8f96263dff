"""Lists, the feed and a record: what they show, and that they stay current."""

import re
import urllib.parse

from playwright.sync_api import expect

from service import commit
from world import DESK, PHONE, create_many, dialog, done, fits, link, open_console, record_of, rows, test

RLM = "\u200f"


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
    expect(page.get_by_label("Search")).to_be_focused()
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
    expect(rows(feed).first).to_contain_text("mydb:main head moved from t 1 to t 2")
    position = s.must("GET", "changes?after=0")["position"]
    expect(feed.locator("[data-test=position]")).to_have_text(str(position))
    expect(feed.locator("[data-test=lag]")).to_have_text(re.compile(r"^\d+ (ms|s|min)$"))
    s.ledger("another")
    expect(page.get_by_role("row", name="another:main")).to_be_visible()
    s.must("DELETE", "records/another")
    expect(page.get_by_role("row", name="another:main")).to_have_count(0)
    s.must("PUT", "leases/mydb", {"name": "index_lock", "holder": "indexer-7", "ttl_seconds": 300})
    expect(one.locator("[data-test=holder]")).to_have_text("indexer-7")
    expect(one.get_by_role("timer")).to_have_text(re.compile(r"[345]:\d\d left"))
    # The same holder takes it again, for so short that it expires.
    # lint: it is to expire
    s.must("PUT", "leases/mydb", {"name": "index_lock", "holder": "indexer-7", "ttl_seconds": 1})
    expect(one.get_by_role("group", name="Lease")).to_contain_text("expired")


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
    rows(page).first.get_by_role("button", name="Details").click()
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
    branches = page.get_by_role("group", name="Branches")
    expect(branches.get_by_role("link")).to_have_text(["dev", "fix"])
    expect(branches.locator("ul ul ul")).to_contain_text("fix")
    page.get_by_role("group", name="Dependents").get_by_role("link", name="search:main").click()
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
def what_is_chosen_the_moment_a_page_appears_is_not_lost(w):
    s = w.service()
    s.ledger("mydb", 1)
    s.ledger("other", 1)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    expect(page.get_by_role("region", name="History").get_by_role("checkbox")).to_have_count(3)
    # An observer sees what was drawn before effects do.
    page.evaluate("""() => new Promise((done) => {
        const observer = new MutationObserver(() => {
            const select = document.querySelector('section.history select');
            if (!select || !document.querySelector('h1').textContent.includes('other')) return;
            observer.disconnect();
            select.value = 'head';
            select.dispatchEvent(new Event('change', { bubbles: true }));
            done();
        });
        observer.observe(document.body, { childList: true, subtree: true });
        location.hash = '#/record/' + encodeURIComponent('other:main');
    })""")
    expect(page.get_by_role("region", name="History").get_by_role("checkbox")).to_have_count(1)


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
    expect(link(page)).to_contain_text("Live")
    expect(page.locator("[data-test=mark-head]")).to_have_text("t 3")
    expect(link(feed)).to_contain_text("Live")
    feed.get_by_label("Concern").select_option("head")
    expect(rows(feed)).to_have_count(3)
    expect(rows(feed).first).to_contain_text("t 2 to t 3")


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
    expect(page.get_by_text("10000 records", exact=True)).to_be_visible(timeout=180_000)
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
    s.push_head("r/07773", 1)
    expect(page.get_by_role("row", name="r/07773:main").get_by_role("cell").nth(3)).to_have_text("1")
