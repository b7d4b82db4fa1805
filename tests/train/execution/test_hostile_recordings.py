"""Flight recordings of others: damaged, invented, hostile; explained, or refused with their name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from openmrc.train.execution.recorder import CollectiveRecord, FlightRecording, PlaneEvent
from tests.programs.in_process import run_here

VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    1 << 70,
    1e308,
    -1e308,
    1e-320,
    "",
    "\x1bc",
    "x" * 10_000,
    [],
    {},
    [[]],
    True,
    {"x": 1},
)


def recording() -> FlightRecording:
    entries = [
        CollectiveRecord(
            sequence=number, call="all_reduce", bytes=1 << 20, step=number // 2, queued_at=100.0 + number,
            begun_at=100.0 + number, ended_at=100.5 + number, state="done", first={1: 0.1}, last={1: 0.4},
            retransmitted={1: 3}, lost={0: 3}, bad_evs=["plane 0 EV 0xc001 ASSUMED_BAD"],
        )
        for number in range(4)
    ]  # fmt: skip
    outage = PlaneEvent(plane=1, state="silent", began_at=101.0, ended_at=0.0, lost=4)
    return FlightRecording("group", 0, 2, ["10.0.0.1"], 110.0, "", entries, [1], [outage])


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*here, key)
        yield from places(each, (*here, key))


def put(whole: Any, place: tuple[Any, ...], value: object) -> None:
    for key in place[:-1]:
        whole = whole[key]
    whole[place[-1]] = value


def test_a_damaged_or_invented_recording_is_explained_or_refused_by_name(tmp_path: Path) -> None:
    draw, file, codes = random.Random(27), tmp_path / "rank0.json", set[int]()
    whole = msgspec.to_builtins(recording(), str_keys=True)
    for turn in range(400):
        changed = msgspec.json.decode(msgspec.json.encode(whole))
        put(changed, draw.choice(list(places(whole))), draw.choice(VALUES))
        text = bytearray(msgspec.json.encode(changed))
        if turn % 3 == 0:
            text[draw.randrange(len(text))] = draw.randrange(256)
        file.write_bytes(text[: draw.randrange(len(text))] if turn % 7 == 0 else text)
        code, out, error = run_here("train", "explain", str(file))
        assert code == 0 or (code == 1 and "rank0.json" in error), error
        assert "\x1b" not in out + error, "a terminal obeys nothing that a file says"
        codes.add(code)
    assert codes == {0, 1}
