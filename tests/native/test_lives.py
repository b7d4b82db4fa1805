"""A queue pair of the library that went through RESET is as good as a new one: its rows are those of one just made.

The oracle is a program whose queue pairs had no life before. What differs between two such programs (times, numbers
drawn at random) does not count.
"""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from openmrc.base.faults import Schedule
from openmrc.native import shared_tables
from openmrc.native.program import fault_steps
from tests.engine.test_reuse import fields_of, is_layout
from tests.native.building import environment, program

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")
DRAWN = {"rotation_cursor", "heard_rotation", "control_rotation"}  # planes, drawn among so few that two may be equal


@contextmanager
def connected(life: str, folder: Path) -> Iterator[None]:
    """Hold a program whose two queue pairs are connected."""
    folder.mkdir(0o700)
    lossy = fault_steps(Schedule.parse("loss: 2%"), 4)
    given = {**environment(MRC_CTL=str(folder), MRC_FAULT_STEPS=lossy), "LD_PRELOAD": ""}
    command = [str(program("tests/lives.c")), life]
    running = subprocess.Popen(command, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "connected\n"
        yield
    finally:
        running.communicate(timeout=60)
    assert running.returncode == 0


def rows_of(life: str, folder: Path) -> list[dict[str, list[Any]]]:
    """Return every field of the rows of both queue pairs, by the order in which their endpoints were opened."""
    with connected(life, folder):
        leads = sorted(folder.glob("*.tables"), key=lambda lead: int(lead.stem.split("-")[1]))
        assert len(leads) == 2
        return [fields_of(tables_of(lead)) for lead in leads]


def tables_of(path: Path) -> Any:
    """Return the engine of a process, copied."""
    lead = msgspec.json.decode(path.read_bytes(), type=shared_tables.TablesLead)
    descriptor = os.open(f"/proc/{lead.pid}/fd/{lead.descriptor}", os.O_RDONLY)
    try:
        memory = mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(descriptor)
    return SimpleNamespace(engine=shared_tables._runtime(memory, lead).engine)


def test_rows_that_went_through_reset_are_those_of_a_queue_pair_without_a_life(tmp_path: Path) -> None:
    again = rows_of("again", tmp_path / "again")
    fresh, other = rows_of("fresh", tmp_path / "fresh"), rows_of("fresh", tmp_path / "other")
    for lived, new, newer in zip(again, fresh, other, strict=True):
        fields = {name: name.split(".")[1] for name, value in new.items() if value == newer[name]}
        told = [name for name, field in fields.items() if field not in DRAWN and not is_layout(field)]
        assert len(told) > 150
        assert {name: (lived[name], new[name]) for name in told if lived[name] != new[name]} == {}
