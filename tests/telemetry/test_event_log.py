"""The event log: numbered lines, kept in memory, appended to a file that cannot fill the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openmrc.telemetry import event_log
from openmrc.telemetry.event_log import EventLog


def test_lines_are_json_with_cause_and_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog("mrc_1", str(path))
    log.add("ev_state", qpn=5, port=2, ev=7, state="ASSUMED_BAD", cause="LOST")
    log.add("port", port=1, state="DOWN", cause="NO_CARRIER")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2]
    assert lines[0] | {"at": 0} == {
        "number": 1,
        "at": 0,
        "kind": "ev_state",
        "device": "mrc_1",
        "qpn": 5,
        "port": 2,
        "ev": 7,
        "state": "ASSUMED_BAD",
        "cause": "LOST",
    }


def test_the_oldest_are_forgotten_and_their_numbers_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MOST_KEPT", 3)
    log = EventLog("mrc_1", "")
    for _ in range(5):
        log.add("timer")
    assert [event.number for event in log.since(0)] == [3, 4, 5]
    assert [event.number for event in log.since(4)] == [5]
    assert log.count == 5


def test_a_file_that_cannot_be_written_is_given_up_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog("mrc_1", str(tmp_path))
    log.add("timer")
    log.add("timer")
    assert [record.message for record in caplog.records if "no more events" in record.message] != []
    assert len(caplog.records) == 1
    assert log.count == 2


def test_a_full_file_grows_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_log, "MOST_FILE_BYTES", 100)
    log = EventLog("mrc_1", str(tmp_path / "events"))
    for _ in range(50):
        log.add("timer")
    assert (tmp_path / "events").stat().st_size < 300
    assert "no more events" in caplog.text
