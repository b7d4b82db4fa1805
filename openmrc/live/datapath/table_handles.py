"""Where an endpoint's tables stand in memory, so that calls from Python pass one number instead of fifty arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import entry, kernel, pinning
from openmrc.engine.build import Layout, build
from openmrc.engine.params import Settings
from openmrc.engine.tables import Engine
from openmrc.live.datapath.tables import Wires, address_of, wires

PIN_BYTES = 1 << 13  # of each of the two; a table takes 56
_SAMPLE = build(Layout(ports=1, controls=1, events=1, sends=1, receives=1), Settings())

_pin_engine, engine_at = pinning(_SAMPLE)
_pin_wires, _wires_at = pinning(wires(_SAMPLE, 1, 1, 1, 1, 0, 0))


@kernel
def wires_at(address: int) -> Any:
    """Return the tables of the sockets that are pinned with the engine at `address`."""
    return _wires_at(address + PIN_BYTES)


def pinned(engine: Engine, tables: Wires) -> NDArray[np.uint8]:
    """Return memory in which both are pinned; its address is what entries take. Keep it, and them, alive."""
    memory = np.zeros(2 * PIN_BYTES, np.uint8)
    _pin(engine, tables, address_of(memory))
    return memory


@entry
def _pin(engine: Engine, tables: Wires, address: int) -> None:
    _pin_engine(engine, address)
    _pin_wires(tables, address + PIN_BYTES)
