"""No change to a switch kills datagrams while its tables are called proven; the datagrams are the oracle.

`MUTATION_SEEDS=13 pytest tests/lab/test_mutations.py` draws 208 changes; half a minute for each 16.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from openmrc.fabric.proof.diff import read_running, tables_of
from openmrc.fabric.proof.verify import verify
from openmrc.lab import lifetime, record, switch_state
from openmrc.lab.layout import EXPORT, Lab
from openmrc.lab.namespaces import namespace
from tests.lab.conftest import fabric_file
from tests.lab.mutations import DATAGRAMS, Draw, Mutation, apply, arrived

_DRAWN = 16  # mutations of a seed
_MORE_SEEDS = range(3, int(os.environ.get("MUTATION_SEEDS", "7")) + 1)
_MOST_REFUSED = 4  # draws for one that the kernel takes


@dataclass(frozen=True)
class Outcome:
    mutation: Mutation
    proven: bool
    arrived: int

    @property
    def is_missed(self) -> bool:
        return self.proven and self.arrived < DATAGRAMS


def is_proven(lab: Lab) -> bool:
    found = read_running(
        lab.plan, "linux", lambda each: switch_state.read_state(each, namespace(lab.name, each.name)), EXPORT
    )
    return verify(lab.plan, tables_of(lab.topology, list(found))).proven


def outcomes(folder: Path, name: str, seed: int, count: int) -> Iterator[Outcome]:
    """Draw mutations until the kernel has taken `count` of them, each in a new lab of this name."""
    fabric, draws, taken = fabric_file(folder, name, planes=1), None, 0
    for number in range(count * _MOST_REFUSED):
        if taken == count:
            return
        lifetime.up(fabric)
        lab = record.plan(name, record.read(name))
        draws = draws or Draw(lab, seed)
        mutation = draws.one(number)
        if not apply(lab, mutation):
            taken += 1
            yield Outcome(mutation, is_proven(lab), arrived(lab))
        lifetime.down(name)
    raise AssertionError(f"the kernel took {taken} of {count} mutations")


def test_a_lab_that_nobody_changed_is_proven_and_delivers(lab: Lab) -> None:
    assert is_proven(lab)
    assert arrived(lab) == DATAGRAMS


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in _MORE_SEEDS)])
def test_no_change_that_kills_datagrams_is_called_proven(seed: int, lab_name: str, tmp_path: Path) -> None:
    found = list(outcomes(tmp_path, lab_name, seed, _DRAWN))
    assert [f"{each.arrived} of {DATAGRAMS} arrive: {each.mutation}" for each in found if each.is_missed] == []
    assert any(each.arrived < DATAGRAMS for each in found)
    assert any(each.proven for each in found)
