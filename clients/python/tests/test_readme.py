"""The code of README.md, run in its order against a service: NAMESERVICE_URL.

The cases are those of clients/typescript/test/readme.test.ts.
"""

import os
import pathlib
import re
import uuid

import pytest
from conftest import LONG
from test_client import UNBORN, cid

README = pathlib.Path(__file__).parent.parent / "README.md"
URL = os.environ["NAMESERVICE_URL"]


class Readme:
    """The blocks of the README, for a ledger of their own, in one program."""

    def __init__(self):
        self.name = f"python/{uuid.uuid4().hex}"
        self.address = f"{self.name}:main"
        # What each commit follows.
        self.parents = {}
        self.program = {"LONG": LONG, "parent": cid(41), "commit_on": self.commit_on}
        text = README.read_text()
        for shown, run in [('"https://names.example.com", token=token', f'"{URL}", **LONG'), ("mydb", self.name)]:
            assert shown in text
            text = text.replace(shown, run)
        self.write, self.follow, self.lease = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    def run(self, block, **names):
        self.program.update(names)
        exec(block, self.program)

    def commit_on(self, parent):
        commit = cid(f"{parent} {len(self.parents)}")
        self.parents[commit] = parent
        return commit


@pytest.fixture
def readme(tmp_path, monkeypatch):
    # Where the cursor is kept.
    monkeypatch.chdir(tmp_path)
    readme = Readme()
    yield readme
    if "names" in readme.program:
        readme.program["names"].close()


def test_a_head_that_another_writer_moves_meanwhile_keeps_the_commits_of_both(names, readme):
    pushed = []

    def commit_on(parent):
        if not pushed:
            pushed.append(readme.commit_on(parent))
            names.head_push(readme.name, {"expected": UNBORN, "new": {"id": pushed[0], "t": 1}})
        return readme.commit_on(parent)

    readme.program["commit_on"] = commit_on
    readme.run(readme.write)
    head = names.record_get(readme.name)["head"]
    assert head["t"] == 2
    assert readme.parents[head["id"]] == pushed[0]
    assert readme.parents[pushed[0]] is None


class Crash(Exception):
    """Ends the program."""


def test_a_reader_that_crashes_resumes_with_what_it_has_not_handled_and_no_snapshot(names, readme):
    readme.run(readme.write)
    # What the pattern leaves out.
    names.ledger_create({"address": f"{readme.name}2"})
    seen = []

    def replace_all(records):
        seen.append([record["address"] for record in records])
        for t in (2, 3):
            names.head_push(readme.name, {"new": {"id": cid(t), "t": t}})

    def crash_at(t):
        def apply(change):
            seen.append(change["watermark"])
            if change["watermark"] == t:
                raise Crash

        return apply

    for t in (3, 4):
        with pytest.raises(Crash):
            readme.run(readme.follow, replace_all=replace_all, apply=crash_at(t))
        names.head_push(readme.name, {"new": {"id": cid(t + 1), "t": t + 1}})
    assert seen == [[readme.address], 2, 3, 3, 4]


def test_what_is_built_under_a_lease_is_published(names, readme):
    readme.run(readme.write)
    readme.run(readme.lease, build=lambda check: {"id": cid(1), "t": 1})
    assert names.record_get(readme.name)["index"]["id"] == cid(1)
