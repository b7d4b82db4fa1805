"""`mrc ctl` against a real endpoint of this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from harness.live_pair import Pair
from openmrc.live.host.addresses import host_of
from tests.ctl.endpoints import connected
from tests.programs.in_process import run_here


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, str, list[str]]]:
    folder = tmp_path_factory.mktemp("ctl", numbered=True) / "ctl"
    with connected(folder) as (pair, client):
        yield pair, str(folder), ["-e", client.endpoint, "--folder", str(folder)]


def said(*arguments: object) -> dict[str, Any]:
    code, out, err = run_here("ctl", *arguments, "--json")
    assert code == 0, err
    return dict(json.loads(out))


def test_endpoints_are_listed(endpoint: tuple[Pair, str, list[str]]) -> None:
    _, folder, _ = endpoint
    found = said("list", "--folder", folder)
    assert len(found["endpoints"]) == 2
    code, out, _ = run_here("ctl", "list", "--folder", folder)
    assert code == 0
    assert len(out.splitlines()) == 2


def test_an_endpoint_must_be_named_if_there_are_several(endpoint: tuple[Pair, str, list[str]]) -> None:
    code, _, err = run_here("ctl", "device", "--folder", endpoint[1])
    assert code == 1
    assert "give an endpoint" in err
    code, _, err = run_here("ctl", "device", "-e", "nobody", "--folder", endpoint[1])
    assert "'nobody': none of this name" in err


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run_here("ctl", "list", "--folder", tmp_path / "file")
    assert code == 1
    assert "file is not a folder" in err


@pytest.mark.parametrize("command", ["device", "ports", "evs", "votes", "denials", "profiles"])
def test_what_is_shown_in_words_is_there_as_json(endpoint: tuple[Pair, str, list[str]], command: str) -> None:
    assert said(command, *endpoint[2])
    code, out, _ = run_here("ctl", command, *endpoint[2])
    assert code == 0
    assert out.strip()


def test_words_have_evs_in_hexadecimal_and_times_of_day(endpoint: tuple[Pair, str, list[str]]) -> None:
    found = said("device", *endpoint[2])
    lines = run_here("ctl", "device", *endpoint[2])[1].splitlines()
    told = {line.split("  ")[1]: line.split("  ")[-1] for line in lines}
    assert told["pid"] == str(found["pid"])
    assert told["port mask"] == hex(found["port_mask"])
    assert datetime.fromisoformat(told["opened at"]).timestamp() == int(found["opened_at"])
    ev = said("evs", *endpoint[2])["queue_pairs"][0]["evs"][0]["ev"]
    assert f" {ev:#x} " in run_here("ctl", "evs", *endpoint[2])[1]


def test_an_ev_is_denied_renewed_and_lifted(endpoint: tuple[Pair, str, list[str]]) -> None:
    pair, _, which = endpoint
    ev = pair.ends[0].qp.ev_states()[0]
    name = f"1:{ev.ev:#x}@{host_of(pair.contexts[1].address.planes[0])}"
    assert len(said("deny", name, "--lease", 30, *which)["denied"]) == 1
    assert said("renew", "--lease", 50, *which)["denied"][0]["seconds"] > 40
    assert "seconds" in run_here("ctl", "denials", *which)[1]
    assert said("lift", name, *which)["denied"] == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["deny"], "give EVs"),
        (["deny", "two:5"], "is not PORT:EV"),
        (["deny", "9:5"], "port: 9 is not in 1..2"),
        (["deny", "1:5", "--lease", "61"], "lease: 61.0 s"),
        (["lift", "1:5"], "is not denied"),
        (["port", "1", "sideways"], "is not one of up, down"),
        (["port", "7", "down"], "port: 7"),
        (["profile", "99", "--mode", "auto"], "99 is not in 1..16"),
        (["profile", "1", "--mode", "clever"], "mode: 'clever'"),
        (["profile", "1", "--set", "1:zz=good"], "is not PORT:EV"),
        (["profile", "1", "--set", "1:00"], "has no '='"),
        (["profile", "1", "--field", "a"], "is not a number"),
        (["format", "1", "--widths", "x"], "is not a number"),
        (["cc", "1", "--algorithm", "reno"], "algorithm: 'reno'"),
        (["use", "--ev", "5"], "INIT"),
        (["probe", "1:5"], "is not PORT:EV@PEER"),
        (["probe", "1:5@192.0.2.1"], "not carried"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    endpoint: tuple[Pair, str, list[str]], words: list[str], reason: str
) -> None:
    code, _, err = run_here("ctl", *words, *endpoint[2])
    assert code in (1, 2)
    assert reason in err
    assert len(err.splitlines()) == 1


def test_profiles_are_configured_and_shown(endpoint: tuple[Pair, str, list[str]]) -> None:
    _, _, which = endpoint
    said("format", 1, "--mode", "udp", "--widths", 16, "--state", "online", *which)
    made = said("profile", 1, "--mode", "generated", "--format", 1, "--count", 6, "--field", "16,0xc000,0,0,0x3fff",
                "--min-active", 2, "--events", "good", "--state", "online", *which)  # fmt: skip
    assert (made["state"], made["event_mask"]) == ("ONLINE", ["GOOD"])
    first = said("array", 1, *which)["entries"][0]["ev"]
    said("profile", 1, "--set", f"{first['port']}:{first['ev']}=denied", *which)
    assert "DENIED" in run_here("ctl", "array", 1, *which)[1]
    assert said("cc", 1, "--algorithm", "uet-1.0-nscc", "--config", "gamma=0.5", "--state", "online", *which)["config"]
    assert said("use", "--ev", 1, "--cc", 1, *which)["default_ev"] == 1
    assert "default ev       1" in run_here("ctl", "profiles", *which)[1]
    said("use", "--ev", 0, "--cc", 0, *which)


def test_a_port_goes_down_and_up(endpoint: tuple[Pair, str, list[str]]) -> None:
    assert not said("port", 2, "down", *endpoint[2])["ports"][1]["enabled"]
    rows = [line.split() for line in run_here("ctl", "port", 2, "up", *endpoint[2])[1].splitlines()]
    assert [row[2] for row in rows if row[:1] == ["2"]] == ["yes"]


def test_the_last_port_goes_down_only_after_a_yes(endpoint: tuple[Pair, str, list[str]]) -> None:
    said("port", 2, "down", *endpoint[2])
    code, _, err = run_here("ctl", "port", 1, "down", *endpoint[2])
    assert code != 0
    assert "port 1 is the last one in use: without it every queue pair stands still; --yes does it" in err
    assert said("ports", *endpoint[2])["ports"][0]["enabled"]
    assert not said("port", 1, "down", "--yes", *endpoint[2])["ports"][0]["enabled"]
    for port in (1, 2):
        said("port", port, "up", *endpoint[2])


def test_probes_and_events(endpoint: tuple[Pair, str, list[str]]) -> None:
    pair, _, which = endpoint
    ev = pair.ends[0].qp.ev_states()[0]
    path = f"1:{ev.ev:#x}@{host_of(pair.contexts[1].address.planes[0])}"
    assert said("probe", path, "--timeout", 5, *which)["probes"][0]["rtt_ns"] is not None
    assert said("events", "--for", 0.1, *which) == {"events": []}
