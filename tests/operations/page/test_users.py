"""Users of the page: who may look, who may act, and what is noted of it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from openmrc.errors import ConfigError
from openmrc.operations.fleets.state_folder import AuditEntry, StateFolder
from openmrc.operations.page.users import PageUser, UserRole, users_in
from tests.operations.page.sources_of_tests import CountingSource, ask, served

DATA = ("/picture", "/frames", "/events", "/cell/0", "/recording.html")
BODY = {"verb": "break", "target": "p0-t0-00<>p0-t1-00"}
USERS = [
    PageUser(name=name, role=role, sha256=hashlib.sha256(token.encode()).hexdigest())
    for name, role, token in (("alice", UserRole.ACT, "token of alice"), ("bob", UserRole.LOOK, "token of bob"))
]


def entered(url: str, token: str) -> dict[str, str]:
    """Return the header with the cookie that a token is worth."""
    status, _, headers = ask(url + "/enter", {}, {"X-MRC-Token": token})
    assert status == 200
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    return {"Cookie": cookie.partition(";")[0]}


def test_only_users_look() -> None:
    with served(CountingSource(), users=USERS) as (page, url):
        assert ask(url + "/")[0] == 200, "the page without data, which asks for the token"
        assert {ask(url + path)[0] for path in DATA} == {401}
        assert ask(url + "/enter", {}, {"X-MRC-Token": page.token})[0] == 403, "the printed token is nobody's"
        bob = entered(url, "token of bob")
        assert ask(url + "/picture", None, bob)[0] == 200
        assert ask(url + "/picture", None, {"Cookie": bob["Cookie"] + "x"})[0] == 401


def test_who_may_act_acts_and_everything_is_noted_with_its_author(tmp_path: Path) -> None:
    state, source = StateFolder(tmp_path / "ctl"), CountingSource()

    def audit(who: str, does: str, what: str, outcome: str) -> None:
        state.record(does, what, outcome, user=who)

    with served(source, users=USERS, audit=audit) as (_, url):
        for token, status in (("token of bob", 403), ("token of alice", 200), ("token of eve", 403)):
            assert ask(url + "/act", BODY, {"Origin": url, "X-MRC-Token": token})[0] == status
    assert len(source.acted) == 1
    lines = (state.path / "audit.jsonl").read_text().splitlines()
    found = [AuditEntry(**json.loads(line)) for line in lines]
    assert [(each.by.split()[0], each.does, each.outcome) for each in found] == [
        ("bob", "act", "refused: bob may look, not act"),
        ("alice", "act", "done"),
    ]
    assert all("p0-t0-00<>p0-t1-00" in each.what for each in found)


def test_the_file_has_hashes_as_sha256sum_makes_them(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    digest = subprocess.run(["sha256sum"], input=b"token of alice", capture_output=True, check=True).stdout.split()[0]
    path.write_text(f"- {{name: alice, role: act, sha256: {digest.decode()}}}\n")
    assert users_in(path) == USERS[:1]
    for text in ("- {name: a, role: act, sha256: abc}", "- {name: a, role: own, sha256: ab}", "[]", "name: a"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="users"):
            users_in(path)
