"""Drains: their stages, what is kept over crashes, and who is in charge."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.operations.control.drains import CHECK_S, IDLE_S, SETTLE_S, Drains
from openmrc.operations.control.operated import ask_drains, ask_undrains, operated, undrain_proof
from openmrc.operations.fleets import state_folder
from openmrc.operations.fleets.ranks import rank_of
from openmrc.operations.fleets.state_folder import (
    AuditEntry,
    DrainEntry,
    HeldFault,
    NotedChange,
    StateFolder,
    last_change,
)
from openmrc.programs.main import app

NONE: frozenset[int] = frozenset()
LINKS = (3, 4)
BOTH = frozenset(LINKS)


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    made = StateFolder(tmp_path / "ctl")
    made.change_drains(lambda entries: [*entries, DrainEntry(target="a<>b", links=LINKS)])
    return made


def stages(state: StateFolder) -> list[str]:
    return [entry.stage for entry in state.drains()]


def undrain(state: StateFolder) -> None:
    state.change_drains(
        lambda entries: [DrainEntry(target=each.target, links=each.links, stage="undraining") for each in entries]
    )


def test_links_are_drained_once_all_avoid_them_and_no_packet_comes_for_a_while(state: StateFolder) -> None:
    count = [100]
    drains = Drains(state, lambda links: count[0], probes=False)
    assert drains.denied() == BOTH == drains.unprobed()
    assert drains.step(0.0, NONE, [], NONE) == []
    assert drains.step(5.0, NONE, [], NONE) == [], "nobody was told yet"
    assert drains.step(5.1, BOTH, [], NONE) == []
    count[0] += 1
    assert drains.step(5.1 + IDLE_S, BOTH, [], NONE) == [], "one packet was under way"
    ((entry, word),) = drains.step(5.2 + 2 * IDLE_S, BOTH, [], NONE)
    assert (entry.target, word) == ("a<>b", "drained")
    assert stages(state) == ["drained"]
    assert drains.denied() == BOTH


def test_where_packets_cannot_be_counted_it_takes_longer(state: StateFolder) -> None:
    drains = Drains(state, None, probes=False)
    assert drains.step(0.0, BOTH, [], NONE) == []
    assert drains.step(SETTLE_S - 0.1, BOTH, [], NONE) == []
    assert [word for _, word in drains.step(SETTLE_S, BOTH, [], NONE)] == ["drained"]


def test_a_last_path_ends_the_drain_and_nothing_stays_denied(state: StateFolder) -> None:
    drains = Drains(state, None, probes=False)
    assert [word for _, word in drains.step(0.0, BOTH, ["7-0 to h3"], NONE)] == ["refused"]
    assert drains.denied() == NONE
    assert state.drains()[0].note == "would take the last path of 7-0 to h3"


def test_without_probes_links_are_used_again_at_once(state: StateFolder) -> None:
    undrain(state)
    drains = Drains(state, None, probes=False)
    assert [word for _, word in drains.step(0.0, BOTH, [], NONE)] == ["undrained"]
    assert drains.denied() == NONE
    assert state.drains() == []


def test_with_probes_links_are_used_again_when_these_have_passed(state: StateFolder) -> None:
    undrain(state)
    drains = Drains(state, None, probes=True)
    assert drains.unprobed() == NONE
    assert drains.denied() == BOTH
    assert drains.step(0.0, BOTH, [], NONE) == []
    assert drains.step(CHECK_S / 2, BOTH, [], NONE) == []
    assert drains.step(CHECK_S, BOTH, [], BOTH) == [], "named as faulty"
    assert [word for _, word in drains.step(CHECK_S + 1, BOTH, [], NONE)] == ["undrained"]


def test_what_is_still_faulty_stays_drained(state: StateFolder) -> None:
    undrain(state)
    drains = Drains(state, None, probes=True)
    for begin in (0, 100):
        undrain(state)
        drains.reload()
        words = [word for now in range(begin, begin + 32) for _, word in drains.step(now, BOTH, [], BOTH)]
        assert words == ["drained"]
        assert drains.entries[0].note == "still faulty"


def test_a_controller_that_seldom_runs_looks_as_often_before_a_part_stays_drained(state: StateFolder) -> None:
    undrain(state)
    drains = Drains(state, None, probes=True)
    assert [word for now in (0.0, 20.0, 40.0, 60.0) for _, word in drains.step(now, BOTH, [], BOTH)] == []
    assert [word for _, word in drains.step(80.0, BOTH, [], NONE)] == ["undrained"]


@pytest.mark.parametrize("stage", ["draining", "drained", "undraining"])
def test_the_next_controller_goes_on_from_any_stage(state: StateFolder, stage: str) -> None:
    state.change_drains(lambda entries: [DrainEntry(target="a<>b", links=LINKS, stage=stage)])  # type: ignore[arg-type]
    after = Drains(StateFolder(state.path.parent), None, probes=False)
    assert after.denied() == BOTH
    words = [word for now in (0.0, SETTLE_S) for _, word in after.step(now, BOTH, [], NONE)]
    assert words == {"draining": ["drained"], "drained": [], "undraining": ["undrained"]}[stage]


def test_commands_of_others_are_seen(state: StateFolder) -> None:
    drains = Drains(state, None, probes=False)
    state.change_drains(lambda entries: [*entries, DrainEntry(target="plane 1", links=(9,))])
    drains.reload()
    assert drains.denied() == {3, 4, 9}


def test_one_controller_is_in_charge(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path / "ctl"), StateFolder(tmp_path / "ctl")
    with first.in_charge():
        assert second.has_controller()
        with pytest.raises(ConfigError, match="another controller is running"), second.in_charge():
            pass
    assert not second.has_controller()
    with second.in_charge():
        assert first.has_controller()


def test_faults_are_kept_and_damage_is_named(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "ctl")
    held = [HeldFault(plane=1, part=7, name="a>b", rate=0.5, penalty=1000.0)]
    state.write_faults(held)
    assert StateFolder(tmp_path / "ctl").faults() == held
    (state.path / "faults.json").write_text("[{")
    with pytest.raises(ConfigError, match=r"faults\.json: damaged"):
        state.faults()


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "ctl"
    folder.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="0700"):
        StateFolder(folder)


def test_what_undraining_gives_back_is_proven_without_touching_anything(tmp_path: Path) -> None:
    """Two of four T1s are drained: with one of them back, a pair has three quarters of its paths."""
    fabric = tmp_path / "small.yaml"
    fabric.write_text(
        "name: small\nhosts: {count: 8}\nplanes: [{count: 1, host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}]\n"
    )
    with pytest.raises(ConfigError, match="--ctl: there is no folder"):
        operated(str(fabric), tmp_path / "ctl")
    (tmp_path / "ctl").mkdir(mode=0o700)
    found = operated(str(fabric), tmp_path / "ctl")
    state = StateFolder(found.sockets)
    ask_drains(state, found.plan, ["p0-t1-00", "p0-t1-01"])
    before = state.drains()
    proof = undrain_proof(found, ["p0-t1-01"])
    assert (proof.allowed, proof.what, proof.worst_share) == (True, ("p0-t1-00",), 0.75)
    assert state.drains() == before
    with pytest.raises(ConfigError, match="'p0-t1-02' is not drained"):
        undrain_proof(found, ["p0-t1-02"])


def test_the_last_change_at_a_part_is_told_and_old_ones_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_folder, "MOST_CHANGES", 3)
    state = StateFolder(tmp_path / "ctl")
    assert last_change(state.changes(), LINKS) == ""
    for number, links in enumerate([(4,), (4,), (9,), (8,)]):
        state.note(NotedChange(at=86400.0 + number, target=f"t{links[0]}", links=links, what=f"work {number}"))
    assert len(state.changes()) == 3
    assert last_change(state.changes(), LINKS) == "1970-01-02 00:00:01 UTC, t4: work 1"


def test_a_process_says_which_rank_of_which_job_it_is() -> None:
    def told(**variables: str) -> str:
        with subprocess.Popen(["sleep", "60"], env=variables) as process:
            try:
                while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                    time.sleep(0.01)
                return rank_of(process.pid)
            finally:
                process.kill()

    assert told(RANK="3", TORCHELASTIC_RUN_ID="none") == "rank 3"
    assert told(SLURM_PROCID="12", SLURM_JOB_ID="17\x1b[2J") == "rank 12 of job 17[2J", "no control characters"
    assert told(PATH="/bin") == told(RANK="x") == rank_of(1 << 30) == ""


def audit(state: StateFolder) -> list[AuditEntry]:
    lines = (state.path / "audit.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=AuditEntry) for line in lines]


def test_every_command_is_in_the_audit_log_with_who_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    (tmp_path / "ctl").mkdir(mode=0o700)
    fabric = tmp_path / "small.yaml"
    fabric.write_text("name: small\nhosts: {count: 8}\nplanes: [{host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}]\n")
    found = operated(str(fabric), tmp_path / "ctl")
    state = StateFolder(found.sockets)
    ask_drains(state, found.plan, ["p0-t1-00"], "new optics")
    ask_undrains(state, ["p0-t1-00"], "done")
    note = ["map", "note", str(fabric), "p0-t1-01", "new image", "--ctl", str(tmp_path / "ctl")]
    assert CliRunner().invoke(app, note).exit_code == 0
    entries = audit(state)
    assert [(each.does, each.what, each.why) for each in entries] == [
        ("drain", "p0-t1-00", "new optics"),
        ("undrain", "p0-t1-00", "done"),
        ("note", "p0-t1-01", "new image"),
    ]
    assert all(each.by.startswith("ann (pid ") for each in entries)
    assert (state.path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_user_without_a_name_is_in_the_audit_log_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SUDO_USER", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_007)
    state = StateFolder(tmp_path / "ctl")
    state.record("note", "p0-t1-01")
    assert audit(state)[0].by == f"4000000007 (pid {os.getpid()})"


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "ctl")

    def add(who: int) -> None:
        for number in range(40):
            state.record("note", f"{who}", f"{number}", "x" * 2000)

    threads = [threading.Thread(target=add, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = audit(state)
    for who in range(4):
        assert [each.outcome for each in entries if each.what == f"{who}"] == [f"{number}" for number in range(40)]
