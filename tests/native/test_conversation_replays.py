"""What two engines were asked in Python, asked of the native code: the same answers and tables, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.engine_pair import NetworkConditions, Pair
from openmrc.wire.codes import Opcode
from tests.engine.test_conversations import drop, first, mark, trim
from tests.native.doors import NativePair

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")
WRITES = range(Opcode.WRITE_FIRST, Opcode.WRITE_ONLY_IMM + 1)

CONVERSATIONS: dict[str, Callable[[type[Pair]], Pair]] = {
    "whole": lambda pair: pair(),
    "lost": lambda pair: pair(filter=first(WRITES, drop)),
    "trimmed": lambda pair: pair(filter=first(WRITES, trim)),
    "marked": lambda pair: pair(filter=first(WRITES, mark)),
    "without acknowledgements": lambda pair: pair(filter=first((Opcode.SACK, Opcode.ACKNOWLEDGE), drop, count=4)),
    "bad network": lambda pair: pair(
        seed=7, conditions=NetworkConditions(loss=0.05, duplicate=0.05, mark=0.1, trim=0.05, jitter_us=20.0)
    ),
    "a plane that goes down": lambda pair: pair(
        seed=3, conditions=NetworkConditions(silences=((1, 20, 5_000),), jitter_us=3.0)
    ),
}


def held(kind: type[Pair], make: Callable[[type[Pair]], Pair]) -> Any:
    pair = make(kind)
    for number in range(6):
        assert pair.receive(number) == 0
        assert pair.write(number, number * 4096, 9_000 * number + 7, number * 65_536, immediate=number) == 0
    pair.run(until_us=2e6, stop=lambda: pair.is_done() or pair.is_in_error(0))
    return pair


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_the_same_bit_for_bit(name: str) -> None:
    here, there = (held(kind, CONVERSATIONS[name]) for kind in (Pair, NativePair))
    assert here.now == there.now
    assert here.diary == there.diary
    assert here.completions == there.completions
    assert here.memory == there.memory
    assert len(here.sends()) == 6
    for table, rows in here.engine._asdict().items():
        assert np.array_equal(np.asarray(rows), np.asarray(getattr(there.engine, table))), table
