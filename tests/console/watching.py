"""The overview, the tree, orders and keys, and what stays true while much changes."""

import re
import threading
import time

from playwright.sync_api import expect

from service import commit
from world import create_many, dialog, done, link, open_console, push, push_many, record_of, report, rows, submit, test, wait_until


def wrong(page):
    return page.locator("[data-test=wrong]")


@test
def the_console_opens_on_what_is_wrong(w):
    s = w.service()
    page = w.page()
    page.goto(f"{s.url}/console")
    expect(link(page)).to_contain_text("Live")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    # An empty service shows the first command to type.
    expect(page.locator("[data-test=first]")).to_contain_text(f"nameservice create mydb --url {s.url}")
    w.accessible(page, "an empty service")
    w.shot(page, "empty")
    s.ledger("mydb", 1)
    expect(wrong(page)).to_contain_text("Nothing is wrong")
    expect(page.get_by_role("region", name="Recent changes")).to_contain_text("mydb:main created, a ledger")
    # All of it comes without a reload, the gravest first.
    s.push_head("mydb", 40)
    expect(wrong(page)).to_contain_text("mydb:main has an index that is 40 behind its head")
    s.ledger("books")
    # lint: it is to expire
    s.must("PUT", "leases/books", {"name": "index_lock", "holder": "indexer-7", "ttl_seconds": 1})
    expect(wrong(page)).to_contain_text("books:main index_lock of indexer-7 has expired")
    expect(wrong(page)).to_contain_text("whoever held the lease may have died")
    s.ledger("orders")
    s.must("PUT", "statuses/orders", {"expected": {"v": 1}, "new": {"payload": {"state": "error", "message": "out of disk"}}})
    expect(wrong(page).get_by_role("listitem")).to_have_text([re.compile("orders:main is in state error.*out of disk"), re.compile("books:main"), re.compile("mydb:main")])
    w.accessible(page, "what is wrong")
    wrong(page).get_by_role("link", name="orders:main").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders:main")
    s.must("PUT", "statuses/orders", {"expected": {"v": 2}, "new": {"payload": {"state": "ready"}}})
    page.get_by_role("link", name="Overview").click()
    expect(wrong(page).get_by_role("listitem")).to_have_count(2)
    expect(page.locator("[data-test=position]")).to_have_text(str(s.must("GET", "changes?after=0")["position"]))


@test
def lists_are_in_natural_order_or_any_other_and_the_address_of_the_page_keeps_it(w):
    s = w.service()
    for n, t in ((10, 5), (2, 7), (1, 6)):
        s.ledger(f"orders-{n}", t)
    s.ledger("books", 9)
    page = w.page()
    open_console(page, s)
    addresses = rows(page).locator(".address")
    expect(addresses).to_have_text(["books:main", "orders-1:main", "orders-2:main", "orders-10:main"])
    page.get_by_role("button", name="Head").click()
    expect(page.get_by_role("columnheader", name="Head")).to_have_attribute("aria-sort", "descending")
    expect(addresses).to_have_text(["books:main", "orders-2:main", "orders-1:main", "orders-10:main"])
    page.get_by_role("button", name="Head").click()
    expect(addresses).to_have_text(["orders-10:main", "orders-1:main", "orders-2:main", "books:main"])
    s.push_head("orders-10", 8)
    expect(addresses).to_have_text(["orders-1:main", "orders-2:main", "orders-10:main", "books:main"])
    page.get_by_label("Search").fill("orders")
    page.get_by_label("Kind").select_option("ledger")
    expect(rows(page)).to_have_count(3)
    # A reload, another user who is sent the address, and the way back from a record.
    other = w.page()
    other.goto(page.url)
    page.reload()
    for it in (page, other):
        expect(it.get_by_label("Search")).to_have_value("orders")
        expect(it.get_by_label("Kind")).to_have_value("ledger")
        expect(rows(it).locator(".address")).to_have_text(["orders-1:main", "orders-2:main", "orders-10:main"])
    page.get_by_role("link", name="orders-2:main").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders-2:main")
    page.go_back()
    expect(page.get_by_label("Search")).to_have_value("orders")
    expect(addresses).to_have_text(["orders-1:main", "orders-2:main", "orders-10:main"])
    page.get_by_role("link", name="orders-2:main").click()
    page.get_by_role("link", name="Records").click()
    expect(page.get_by_label("Search")).to_have_value("orders")


@test
def the_tree_opens_and_closes_by_keyboard_and_stays_as_it_was(w):
    s = w.service()
    for name in ("tenant/a/orders-2", "tenant/a/orders-10", "tenant/b/orders", "mydb"):
        s.ledger(name, 1)
    s.must("POST", "branches", {"name": "mydb", "branch": "dev", "source": "main"})
    page = w.page()
    open_console(page, s)
    page.get_by_role("button", name="Tree").click()
    expect(rows(page)).to_have_text([re.compile(r"^\s*mydb 2$"), re.compile(r"^\s*tenant/ 3$")])
    page.keyboard.press("j")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("row", name="mydb 2")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="mydb:dev")).to_be_focused()
    page.get_by_role("button", name="tenant/").click()
    page.get_by_role("button", name="a/").click()
    expect(page.get_by_role("treegrid")).to_contain_text(re.compile(r"orders-2:main.*orders-10:main.*b/orders:main", re.S))
    expect(page.get_by_role("row", name="orders-10:main")).to_have_attribute("aria-level", "3")
    page.reload()
    expect(page.get_by_role("link", name="tenant/a/orders-10:main")).to_be_visible()
    s.ledger("tenant/a/orders-7")
    expect(page.get_by_role("link", name="tenant/a/orders-7:main")).to_be_visible()
    # A search opens what it finds.
    page.goto(f"{s.url}/console#/records?view=tree")
    page.get_by_label("Search").fill("orders-1")
    expect(page.get_by_role("link", name="tenant/a/orders-10:main")).to_be_visible()
    page.get_by_role("link", name="tenant/a/orders-10:main").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tenant/a/orders-10:main")


@test
def keys_move_search_open_and_explain_themselves(w):
    s = w.service()
    for n in range(3):
        s.ledger(f"db{n}", 1)
    page = w.page()
    page.goto(f"{s.url}/console")
    expect(link(page)).to_contain_text("Live")
    page.keyboard.press("r")
    expect(page.get_by_role("heading", level=1)).to_have_text("Records")
    expect(rows(page)).to_have_count(3)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="db1:main")).to_be_focused()
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="db0:main")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("db0:main")
    # Rare and dangerous actions are in a menu.
    menu = page.get_by_role("button", name="More actions")
    menu.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Protect …")).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("menuitem", name="Purge …")).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    page.keyboard.press("c")
    expect(page.get_by_role("heading", level=1)).to_have_text("Changes")
    expect(page.get_by_label("Address")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Address")).to_be_focused()
    page.keyboard.type("j?/")
    expect(page.get_by_label("Address")).to_have_value("j?/")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("?")
    expect(dialog(page)).to_contain_text("Search")
    page.keyboard.press("Escape")
    done(page)


@test
def values_are_copied(w):
    s = w.service()
    s.ledger("mydb", 1)
    page = w.page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=s.url)
    open_console(page, s, record_of("mydb:main"))
    for name, text in (("Copy the address", "mydb:main"), ("Copy the id of the head", commit(1)), ("Copy the status", '{\n  "state": "ready"\n}')):
        page.get_by_role("button", name=name).click()
        expect(page.get_by_text("is copied.")).to_be_visible()
        page.wait_for_function("(text) => navigator.clipboard.readText().then((it) => it === text)", arg=text)


@test
def a_form_shows_what_it_replaces(w):
    s = w.service()
    s.ledger("mydb", 4)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    push(page, "head")
    replaced = dialog(page).get_by_role("region", name="Replaces")
    expect(replaced).to_contain_text("t 4")
    expect(replaced).to_contain_text(commit(4))
    expect(dialog(page).get_by_label("t", exact=True)).to_have_value("5")
    submit(page, "Cancel")
    push(page, "status")
    dialog(page).get_by_text("Replaces v 1").click()
    expect(dialog(page).get_by_role("region", name="Replaces")).to_contain_text('"state": "ready"')


@test
def branches_are_live(w):
    s = w.service()
    s.ledger("mydb", 1)
    s.must("POST", "branches", {"name": "mydb", "branch": "dev", "source": "main"})
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    branches = page.get_by_role("group", name="Branches")
    expect(branches.get_by_role("listitem").nth(1)).to_contain_text("dev t 1")
    s.push_head("mydb:dev", 5)
    expect(branches.get_by_role("listitem").nth(1)).to_contain_text("dev t 5")
    s.must("POST", "branches", {"name": "mydb", "branch": "fix", "source": "dev"})
    expect(branches.get_by_role("link", name="fix")).to_be_visible()
    s.must("POST", "retractions/mydb:fix", {})
    expect(branches.get_by_role("listitem").filter(has_text="fix").last).to_contain_text("retracted")


@test
def a_comparison_is_in_sight_and_an_old_error_is_not_beside_another_value(w):
    s = w.service()
    s.ledger("mydb", 1)
    for t in range(2, 60):
        s.push_head("mydb", t)
    page = w.page()
    open_console(page, s, record_of("mydb:main"))
    history = page.get_by_role("region", name="History")
    expect(history.get_by_role("checkbox").nth(55)).to_be_attached()
    history.get_by_role("checkbox").nth(50).check()
    history.get_by_role("checkbox").nth(55).check()
    expect(page.get_by_role("region", name="Difference")).to_be_in_viewport()
    w.accessible(page, "a comparison")
    w.shot(page, "comparison")
    # It is in the address of the page, too.
    page.reload()
    expect(page.get_by_role("region", name="Difference")).to_contain_text("watermark")
    push(page, "config")
    dialog(page).get_by_label("Config").fill("{not json")
    submit(page, "Push config")
    expect(dialog(page).get_by_role("alert")).to_contain_text("not JSON")
    s.must("PUT", "configs/mydb", {"expected": {"v": 0}, "new": {"payload": {"theirs": 1}}})
    expect(dialog(page).get_by_role("alert", name="Overtaken")).to_be_in_viewport()
    expect(dialog(page).get_by_role("alert")).to_have_count(1)


@test
def a_late_answer_never_replaces_a_newer_value(w):
    s = w.service()
    s.ledger("mydb", 1)
    page = w.page()
    open_console(page, s)
    held = []
    # The record as it is when it is asked for; the answer is under way for longer than its next changes.
    page.route("**/v1/records/mydb*", lambda route: held.append((route, route.fetch())), times=1)
    large = {"text": "x" * 20_000}
    s.must("PUT", "configs/mydb", {"expected": {"v": 0}, "new": {"payload": large}})
    wait_until(page, lambda: held, "a value that the feed leaves out is read")
    s.push_head("mydb", 9)
    cells = page.get_by_role("row", name="mydb:main").get_by_role("cell")
    expect(cells.nth(3)).to_have_text("9")
    for route, answer in held:
        assert answer.json()["head"]["t"] == 1
        route.fulfill(response=answer)
    # Of the late answer, what the feed has not shown is taken.
    expect(cells.nth(5)).to_have_text("1")
    page.wait_for_timeout(300)
    expect(cells.nth(3)).to_have_text("9")


@test
def a_long_feed_is_read_to_its_beginning_and_a_history_loses_nothing(w):
    s = w.service()
    s.ledger("mydb", 1)
    page, one = w.page(), w.page()
    open_console(one, s, record_of("mydb:main"))
    s.push_head("mydb", 2)
    expect(one.get_by_role("region", name="History")).to_contain_text("head moved from t 1 to t 2")
    push_many(s, 3200)
    s.push_head("mydb", 3)
    history = one.get_by_role("region", name="History")
    expect(history).to_contain_text("head moved from t 2 to t 3")
    expect(history).to_contain_text("head moved from t 1 to t 2")
    expect(history).to_contain_text("created, a ledger")
    open_console(page, s, "#/changes?q=mydb")
    expect(rows(page)).to_have_count(1)
    # While it reads, the button is disabled.
    earlier = page.get_by_role("button", name="Earlier", disabled=False)
    created = rows(page).filter(has_text="created, a ledger")
    expect(earlier).to_be_visible()
    while not created.count():
        earlier.click()
        expect(earlier.or_(created).first).to_be_visible()
    expect(earlier).to_have_count(0)
    expect(rows(page).last).to_contain_text("mydb:main")
    expect(created).to_have_count(1)


@test
def records_beyond_those_that_a_browser_holds_are_found(w):
    s = w.service()
    create_many(s, 40)
    page = w.page()

    def fewer(route):
        answer = route.fetch()
        body = answer.text().replace("50_000", "10").replace("limit: '1000', ...(cursor", "limit: '10', ...(cursor")
        route.fulfill(response=answer, body=body)

    page.route("**/console/live.js", fewer)
    open_console(page, s)
    expect(page.get_by_text("there are more, which a search finds")).to_be_visible()
    expect(rows(page)).to_have_count(10)
    page.get_by_label("Search").fill("r/00033")
    expect(page.get_by_role("link", name="r/00033:main")).to_be_visible()


VIEWS = {
    "list": "#/records?sort=-updated",
    "tree": "#/records?view=tree&open=r%2F",
    "overview": "#/overview",
    "changes": "#/changes",
    "record": record_of("r/00000:main"),
}


@test
def a_change_among_a_thousand_records_writes_little_to_the_document(w):
    s = w.service()
    create_many(s, 1000)
    page = w.page()
    # A fixed time, by which no age changes: each second would write it.
    page.clock.set_fixed_time(time.time())
    written, t = {}, 1000
    for what, fragment in VIEWS.items():
        open_console(page, s, fragment)
        # One by one, so that each is drawn alone. The first may add what stays.
        for n in range(21):
            t += 1
            s.push_head("r/00000", t)
            expect(page.locator("main")).to_contain_text(str(t))
            if n == 0:
                if what == "record":
                    expect(page.get_by_role("region", name="History")).to_contain_text("created, a ledger")
                page.evaluate(COUNT_WRITES)
        written[what] = page.evaluate("window.stopCounting()") / 20
    print("    written for a change: " + ", ".join(f"{what} {count:.1f}" for what, count in written.items()))
    # All rows in sight, drawn anew, are more than 300.
    assert max(written.values()) < 200, written


COUNT_WRITES = """() => {
  let count = 0;
  const size = (node) => 1 + (node.querySelectorAll?.('*').length ?? 0);
  const take = (writes) => {
    for (const { type, addedNodes } of writes) count += type === 'childList' ? [...addedNodes].reduce((sum, node) => sum + size(node), 0) : 1;
  };
  const observer = new MutationObserver(take);
  observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  window.stopCounting = () => {
    take(observer.takeRecords());
    observer.disconnect();
    return count;
  };
}"""


@report
def frames_of_ten_thousand_records_under_a_hundred_changes_a_second(w):
    s = w.service()
    create_many(s, 10_000)
    page = w.page()
    open_console(page, s)
    expect(page.get_by_text("10000 records", exact=True)).to_be_visible(timeout=180_000)
    scrolled = page.evaluate(SCROLL)
    print(f"    scrolling through all: median frame {scrolled['median']:.0f} ms, longest {scrolled['longest']:.0f} ms", flush=True)
    cost = page.context.new_cdp_session(page)
    # The time of its thread, so that what else the machine does is not counted.
    cost.send("Performance.enable", {"timeDomain": "threadTicks"})
    for what, fragment in VIEWS.items():
        page.goto(f"{s.url}/console{fragment}")
        # lint: figures of a time, without a verdict
        page.wait_for_timeout(500)
        with writing(s, 100) as written:
            page.wait_for_timeout(300)  # lint: as above
            before, started = busy(cost), written[0]
            frames = page.evaluate(FRAMES, 4000)
            after, ended = busy(cost), written[0]
        average = (after - before) * 1000 / frames["count"]
        print(
            f"    {what}: {average:.1f} ms of work a frame on average ({frames['count']} frames, {(ended - started) / frames['seconds']:.0f} changes/s, "
            f"{frames['seconds'] * 1000 / frames['count']:.1f} ms between frames)",
            flush=True,
        )


def busy(cost):
    """The seconds for which the page has been at work."""
    return next(it["value"] for it in cost.send("Performance.getMetrics")["metrics"] if it["name"] == "TaskDuration")


SCROLL = """async () => {
  const box = document.querySelector('.list-box');
  const frames = []; let last = performance.now();
  for (let n = 0; n < 120; n += 1) {
    box.scrollTop = (box.scrollHeight / 120) * n;
    await new Promise(requestAnimationFrame);
    const now = performance.now(); frames.push(now - last); last = now;
  }
  frames.sort((a, b) => a - b);
  return {median: frames[60], longest: frames[119]};
}"""


FRAMES = """async (milliseconds) => {
  const box = document.querySelector('.list-box');
  const start = performance.now();
  let count = 0;
  while (performance.now() - start < milliseconds) {
    if (box) box.scrollTop = (box.scrollTop + 40) % Math.max(1, box.scrollHeight - box.clientHeight);
    await new Promise(requestAnimationFrame);
    count += 1;
  }
  return {count, seconds: (performance.now() - start) / 1000};
}"""


class writing:
    """Pushes heads at a rate while the block runs: `[count]`."""

    def __init__(self, service, rate):
        self.service, self.rate, self.count, self.ended = service, rate, [0], threading.Event()

    def run(self):
        start, first = time.monotonic(), self.count[0]
        t = time.time_ns() // 1_000_000
        while not self.ended.is_set():
            ahead = (self.count[0] - first) / self.rate - (time.monotonic() - start)
            if ahead > 0:
                time.sleep(ahead)
            self.service.push_head(f"r/{self.count[0] % 50:05}", t + self.count[0])
            self.count[0] += 1

    def __enter__(self):
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self.count

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
