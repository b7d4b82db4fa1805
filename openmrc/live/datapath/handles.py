"""Handles of an endpoint's tables in memory, so that calls from Python pass one number instead of fifty arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import entry, kernel, table_handle
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath.rows import DataPath, address_of, build_datapath

HANDLE_BYTES = 1 << 13  # of each of the two; a table takes 56
_SAMPLE = build(TableSizes(ports=1, controls=1, events=1, sends=1, receives=1), Settings())

_store_engine, engine_at = table_handle(_SAMPLE)
_store_datapath, _datapath_at = table_handle(build_datapath(_SAMPLE, 1, 1, 1, 1, 0, 0))


@kernel
def datapath_at(address: int) -> Any:
    """Return the data path's tables that were stored with the engine at `address`."""
    return _datapath_at(address + HANDLE_BYTES)


def store(engine: Engine, tables: DataPath) -> NDArray[np.uint8]:
    """Return memory that holds the handles of both; entries take its address. Keep it, and the tables, alive."""
    memory = np.zeros(2 * HANDLE_BYTES, np.uint8)
    _store(engine, tables, address_of(memory))
    return memory


@entry
def _store(engine: Engine, tables: DataPath, address: int) -> None:
    _store_engine(engine, address)
    _store_datapath(tables, address + HANDLE_BYTES)
