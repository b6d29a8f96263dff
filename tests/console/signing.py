"""Who uses the console: pasted tokens, and sign-in at a real OpenID provider."""

import re
import time

from playwright.sync_api import expect

from service import Issuer, commit
from world import dialog, done, link, open_console, push, record_of, rows, submit, test

STORED = "JSON.stringify([{...localStorage}, document.cookie, location.href, history.state])"


@test
def a_pasted_token_lives_as_long_as_the_tab_and_gives_no_more_than_the_api(w):
    issuer = Issuer(w.folder)
    s = w.service("--jwks", str(issuer.file), "--any-issuer", "--any-audience")
    s.token = issuer.token("nameservice:admin")
    s.ledger("mydb", 1)
    s.ledger("secret", 1)
    reader = issuer.token("nameservice:read", **{"nameservice:addresses": ["mydb:*"]})
    page = w.page()
    open_console(page, s, live=False)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    # Nothing seems to be under way that never ends.
    assert not re.search("Loading|Reading", page.locator("main").inner_text())
    w.accessible(page, "without a token")
    w.shot(page, "sign-in-token")
    page.get_by_label("Bearer token").fill("not.a.token")
    page.get_by_role("button", name="Use it").click()
    expect(link(page)).to_contain_text("Signed out")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in again")
    page.get_by_label("Bearer token").fill(reader)
    page.get_by_role("button", name="Use it").click()
    expect(link(page)).to_contain_text("Live")
    expect(rows(page)).to_have_text([re.compile("mydb:main")])
    s.push_head("secret", 2)
    s.push_head("mydb", 2)
    expect(page.get_by_role("row", name="mydb:main")).to_contain_text("2")
    assert "secret" not in page.content()
    page.reload()
    expect(link(page)).to_contain_text("Live")
    kept = page.evaluate(STORED)
    assert reader not in kept and "eyJ" not in kept, kept
    page.get_by_role("link", name="mydb:main").click()
    push(page, "head")
    dialog(page).get_by_label("Id").fill(commit(3))
    submit(page, "Push head")
    expect(dialog(page).get_by_role("alert")).to_contain_text("nameservice:write")
    assert s.record("mydb")["head"]["t"] == 2
    submit(page, "Cancel")
    # Another tab has no part in it.
    other = page.context.new_page()
    open_console(other, s, live=False)
    expect(link(other)).to_contain_text("Signed out")
    page.get_by_role("button", name="User console-test").click()
    w.accessible(page, "the menu of the user")
    page.get_by_role("menuitem", name="Forget the token").click()
    expect(link(page)).to_contain_text("Signed out")
    assert "mydb" not in page.locator("main").inner_text()
    page.reload()
    expect(link(page)).to_contain_text("Signed out")
    assert "eyJ" not in page.evaluate("JSON.stringify({...sessionStorage})")


def signing_in(w, *arguments):
    """A service whose console signs in at a provider."""
    provider = w.provider("http://127.0.0.1/console http://127.0.0.1/names/console")
    s = w.service(
        *("--jwks", str(provider.keys), "--issuer", provider.url, "--audience", "nameservice", "--oidc-client", "console"), *arguments, host="127.0.0.1"
    )
    return provider, s


def sign_in(page, provider, name):
    page.get_by_role("button", name=f"Sign in at {provider.url.removeprefix('http://')}").click()
    page.wait_for_url(f"{provider.url}/interaction/**")
    page.locator("input[name=login]").fill(name)
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    # What this client may do is granted once.
    page.get_by_role("button", name="Continue").click()


@test
def users_sign_in_at_an_openid_provider_and_come_back_to_where_they_were(w):
    provider, s = signing_in(w)
    page = w.page()
    foreign = []
    page.on("request", lambda request: foreign.append(request.url) if request.frame.url.startswith(s.url) and not request.url.startswith((s.url, provider.url)) else None)
    open_console(page, s, "#/records?q=my&sort=-updated", live=False)
    expect(link(page)).to_contain_text("Signed out")
    w.accessible(page, "the sign-in")
    w.shot(page, "sign-in")
    sign_in(page, provider, "alice")
    expect(link(page)).to_contain_text("Live")
    assert page.url == f"{s.url}/console#/records?q=my&sort=-updated", page.url
    expect(page.get_by_role("button", name="User alice")).to_be_visible()

    # The token is one that the service accepts, for what was granted.
    page.goto(f"{s.url}/console#/records?new=ledger")
    dialog(page).get_by_label("Address").fill("mydb")
    submit(page, "Create")
    done(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("mydb:main")
    page.reload()
    expect(page.get_by_role("button", name="User alice")).to_be_visible()
    expect(page.locator("[data-test=mark-head]")).to_have_text("t 0")
    assert "eyJ" not in page.evaluate(STORED)

    page.get_by_role("button", name="User alice").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert "eyJ" not in page.evaluate("JSON.stringify({...sessionStorage})")
    # Whoever has signed out is asked again, though the provider still knows them.
    sign_in(page, provider, "dave")
    expect(page.get_by_role("button", name="User dave")).to_be_visible()
    assert not foreign, foreign


@test
def a_session_outlives_its_token_while_the_provider_renews_it(w):
    provider, s = signing_in(w)
    page = w.page()
    open_console(page, s, live=False)
    sign_in(page, provider, "bob")
    expect(link(page)).to_contain_text("Live")
    renewed = []
    page.on("request", lambda request: renewed.append(request.url) if request.url == f"{provider.url}/token" else None)
    before = page.evaluate("JSON.stringify({...sessionStorage})")
    # Tokens are renewed half a minute before they end. By the clock of the browser, that is now.
    page.clock.set_system_time(time.time() + 580)
    page.goto(f"{s.url}/console{record_of('nowhere:main')}")
    expect(page.get_by_text("There is no record under this address")).to_be_visible()
    # A read does not wait for the renewal: its answer may come first.
    page.wait_for_function("before => JSON.stringify({...sessionStorage}) !== before", arg=before)
    assert renewed, "the token was renewed"
    expect(page.get_by_role("button", name="User bob")).to_be_visible()


@test
def a_sign_in_as_another_user_leaves_nothing_of_the_one_before(w):
    provider, s = signing_in(w)
    page = w.page()
    open_console(page, s, live=False)
    sign_in(page, provider, "alice")
    expect(page.get_by_role("button", name="User alice")).to_be_visible()
    session = lambda: page.evaluate("Object.values({...sessionStorage}).map(JSON.parse).find((it) => it.token)")
    assert session()["refresh"]
    page.get_by_role("button", name="User alice").click()
    page.get_by_role("menuitem", name="Sign in as another user").click()
    # The provider gives this one no refresh token: the token of another user must not be renewed for it.
    sign_in(page, provider, "guest-bob")
    expect(page.get_by_role("button", name="User guest-bob")).to_be_visible()
    assert "refresh" not in session(), session()
    page.clock.set_system_time(time.time() + 700)
    page.goto(f"{s.url}/console{record_of('nowhere:main')}")
    expect(page.get_by_text("There is no record under this address")).to_be_visible()
    assert session()["name"] == "guest-bob", session()


@test
def an_answer_that_belongs_to_no_sign_in_signs_nobody_in(w):
    provider, s = signing_in(w)
    page = w.page()
    sent = []
    page.on("request", lambda request: sent.append(request.url) if request.url.startswith(provider.url) else None)
    page.goto(f"{s.url}/console?code=stolen&state=guessed#/records")
    expect(page.get_by_role("alert")).to_contain_text("This tab has not begun it")
    expect(link(page)).to_contain_text("Signed out")
    assert "code=" not in page.url, page.url
    assert not sent, sent
    # A provider that is down is named.
    page.get_by_role("alert").wait_for()
    provider.stop()
    page.get_by_role("button", name=re.compile("Sign in at")).click()
    expect(page.get_by_role("alert").filter(has_text="cannot be read")).to_be_visible()


@test
def a_provider_below_a_base_path_of_the_service_signs_in_too(w):
    provider, s = signing_in(w, "--base-path", "/names")
    page = w.page()
    page.goto(f"{s.url}/names/console#/overview")
    expect(link(page)).to_contain_text("Signed out")
    sign_in(page, provider, "carol")
    expect(link(page)).to_contain_text("Live")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
