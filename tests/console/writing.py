"""Forms: each writes what it says, or nothing."""

import contextlib
import re

from playwright.sync_api import expect

from service import commit
from world import choose, create, dialog, done, open_console, push, record_of, submit, test, wait_until


@test
def every_form_writes(w):
    s = w.service()
    page = w.page()
    open_console(page, s)
    create(page, "ledger")
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
    expect(page.get_by_role("group", name="Branches").get_by_role("link", name="dev")).to_be_visible()
    assert s.record("mydb:dev")["head"]["t"] == 1

    open_console(page, s)
    create(page, "graph source")
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
    choose(page, "Retract …")
    submit(page, "Retract")
    expect(dialog(page).get_by_role("alert")).to_contain_text("search:main")
    submit(page, "Cancel")

    open_console(page, s, record_of("mydb:dev"))
    choose(page, "Retract …")
    dialog(page).get_by_label("Reason").fill("moved")
    submit(page, "Retract")
    done(page)
    assert s.record("mydb:dev")["retracted"] and s.record("mydb:dev")["status"]["payload"]["reason"] == "moved"
    choose(page, "Restore …")
    submit(page, "Restore")
    done(page)
    assert not s.record("mydb:dev")["retracted"]
    choose(page, "Reset …")
    dialog(page).get_by_label("Id of the head").fill(commit("r"))
    dialog(page).get_by_label("t of the head").fill("1")
    dialog(page).get_by_label("Id of the index").fill("")
    dialog(page).get_by_label("t of the index").fill("0")
    submit(page, "Reset")
    done(page)
    assert s.record("mydb:dev")["head"] == {"id": commit("r"), "t": 1}

    # A protected record stays until its protection is taken away.
    choose(page, "Protect …")
    submit(page, "Protect")
    done(page)
    expect(page.locator(".marks")).to_contain_text("protected")
    assert s.record("mydb:dev")["protected"] is True
    choose(page, "Purge …")
    dialog(page).get_by_label("Type the address").fill("mydb:dev")
    submit(page, "Purge")
    expect(dialog(page).get_by_role("alert")).to_contain_text("The record is protected")
    submit(page, "Cancel")
    choose(page, "Unprotect …")
    submit(page, "Unprotect")
    done(page)
    assert "protected" not in s.record("mydb:dev")
    # A form that opens before the page shows it is overtaken by it.
    expect(page.locator(".marks", has_text="protected")).to_have_count(0)

    choose(page, "Purge …")
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
    expect(dialog(page).get_by_label("Config")).to_be_focused()
    expect(dialog(page).get_by_label("Config")).to_have_value("{not json")
    submit(page, "Cancel")
    push(page, "head")
    dialog(page).get_by_label("Id").fill("no content id")
    submit(page, "Push head")
    expect(dialog(page).get_by_role("alert")).to_contain_text("content id")
    expect(dialog(page).get_by_label("Id")).to_be_focused()
    expect(dialog(page).get_by_label("Id")).to_have_attribute("aria-invalid", "true")
    w.accessible(page, "a field with an error")
    w.shot(page, "field-error")
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
    wait_until(pages[0], lambda: any(dialog(page).count() == 0 for page in pages), "one of them wins")
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
    wait_until(pages[0], lambda: len(held) == len(pages), "each browser pushes once")
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
    expect(overtaken).to_be_in_viewport()
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
    choose(page, "Purge …")
    dialog(page).get_by_label("Type the address").fill("mydb:main")
    pushed = []

    def overtake(route):
        # When the form is sent, the page reads the record again, which changes at that moment. A slow page may still read it for itself.
        if not pushed and page.evaluate("window.isSent"):
            pushed.append(s.push_head("mydb", 2))
        route.continue_()

    page.evaluate("document.addEventListener('submit', () => (window.isSent = true), true)")
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
