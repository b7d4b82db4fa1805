"""Control operations on queue pairs, compiled: the loop mutex is never held by interpreted code for them.

A thread of Python that holds the mutex keeps every flow waiting while it waits for the interpreter's lock, and to bring
up one queue pair means to write thousands of rows.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core.calls import MATRIX, WORD, WORDS
from openmrc.core.jit import CompiledEntry, entry, kernel, rare_kernel
from openmrc.engine import lifecycle
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvState, QpEvent
from openmrc.engine.state.tables import NONE, Cause, Engine
from openmrc.live.datapath import handles
from openmrc.live.datapath.libc import Words, monotonic
from openmrc.live.datapath.loop import attendance
from openmrc.live.datapath.rows import DataPath
from openmrc.wire.layout import Matrix

UNCHANGED = -1
NO_EV = -1
EMPTY_EV = (1 << 32) - 1  # value of a row without an EV; sockets have none so large
_ACTIVE_SHARE = 4  # of so many EVs of a plane, one is the reserve


class Attribute(IntEnum):
    """Columns of a request: an attribute of the queue pair each, named as its field in the engine."""

    PD = 0
    SQ_SIGNAL_ALL = 1
    TRIM_NACK_DEST = 2
    DYNAMIC_MPR = 3
    ACCESS = 4
    DEST_QPN = 5
    PATH_MTU = 6
    MAX_WIMM = 7
    MAX_WIMM_DEST = 8
    MPR = 9
    MPR_DEST = 10
    TIMEOUT = 11
    LINEAR_COUNT = 12
    EXPONENTIAL_COUNT = 13
    USER_TIMEOUT = 14
    PEER = 15
    EXPECTED_PSN = 16
    FIRST_PSN = 17


_COLUMNS = {attribute.name.lower(): int(attribute) for attribute in Attribute}  # plain: members are slow to find


def request(**attributes: int | None) -> NDArray[np.int64]:
    """Return a request that sets these attributes; None is as good as left out."""
    words = np.full(len(_COLUMNS), UNCHANGED, np.int64)
    for name, value in attributes.items():
        if value is not None:
            words[_COLUMNS[name]] = value
    return words


@entry
def change(at: int, qp: int, words: Words) -> None:
    """Set attributes of a queue pair; `at` is the address of the table handles."""
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    _write(handles.engine_at(at), qp, words)
    attendance.release(datapath)


@entry
def move(at: int, qp: int, event: int, words: Words) -> int:
    """Set attributes and move a queue pair; return 1, or 0 if the state table has no such step."""
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    now = monotonic(datapath.clock[0], datapath.nic[0].epoch)
    datapath.nic[0].now = now
    _write(engine, qp, words)
    if event == QpEvent.TO_RTR and words[Attribute.PEER] != UNCHANGED:
        _begin_paths(engine, datapath, now, qp)
    if event == QpEvent.FAIL:
        lifecycle.fail(engine, now, qp, Cause.LOCAL)
        done = 1
    else:
        done = lifecycle.move(engine, now, qp, event)
    if event == QpEvent.TO_RESET:
        engine.qps[qp].peer = NONE
    attendance.release(datapath)
    return done


@entry
def give(at: int, qp: int, values: Matrix, min_active: int) -> int:
    """Give a queue pair these EVs instead of all of the sending sockets; return how many it has.

    `values` has a row for each plane, ended by NO_EV. What stays empty is denied for good and not part of a rotation.
    """
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    row = engine.qps[qp]
    count, most = 0, 0
    for plane in range(row.rotation_count):
        total = _length(values, plane)
        _give_rotation(engine, qp, plane, values, total)
        count += total
        most = max(most, total)
    if count > 0:
        now = monotonic(datapath.clock[0], datapath.nic[0].epoch)
        ev_states.begin(engine, now, qp, max(1, most - most // _ACTIVE_SHARE), min_active)
    row.good_evs = count
    attendance.release(datapath)
    return count


ENTRIES: tuple[tuple[CompiledEntry[..., Any], tuple[Any, ...]], ...] = (
    (change, (WORD, WORD, WORDS)),
    (move, (WORD, WORD, WORD, WORDS)),
    (give, (WORD, WORD, MATRIX, WORD)),
)


@kernel
def _length(values: Matrix, plane: int) -> int:
    for k in range(values.shape[1]):
        if values[plane, k] == NO_EV:
            return k
    return int(values.shape[1])


@rare_kernel
def _give_rotation(engine: Engine, qp: int, plane: int, values: Matrix, total: int) -> None:
    row = engine.qps[qp]
    rotation = engine.rotations[row.rotation_base + plane]
    rotation.total = total
    for k in range(row.ev_count // row.rotation_count):
        ev_states.set_ev(engine, qp, plane, k, int(values[plane, k]) if k < total else EMPTY_EV)
        if k >= total:
            engine.evs[rotation.ev_base + k].state = EvState.DENIED


@kernel
def _write(engine: Engine, qp: int, words: Words) -> None:
    row = engine.qps[qp]
    row.pd = _new_or(words[Attribute.PD], row.pd)
    row.sq_signal_all = _new_or(words[Attribute.SQ_SIGNAL_ALL], int(row.sq_signal_all)) != 0
    row.trim_nack_dest = _new_or(words[Attribute.TRIM_NACK_DEST], int(row.trim_nack_dest)) != 0
    row.dynamic_mpr = _new_or(words[Attribute.DYNAMIC_MPR], int(row.dynamic_mpr)) != 0
    row.access = _new_or(words[Attribute.ACCESS], row.access)
    row.dest_qpn = _new_or(words[Attribute.DEST_QPN], row.dest_qpn)
    row.path_mtu = _new_or(words[Attribute.PATH_MTU], row.path_mtu)
    row.max_wimm = _new_or(words[Attribute.MAX_WIMM], row.max_wimm)
    row.max_wimm_dest = _new_or(words[Attribute.MAX_WIMM_DEST], row.max_wimm_dest)
    row.mpr = _new_or(words[Attribute.MPR], row.mpr)
    row.mpr_dest = _new_or(words[Attribute.MPR_DEST], row.mpr_dest)
    row.timeout = _new_or(words[Attribute.TIMEOUT], row.timeout)
    row.linear_count = _new_or(words[Attribute.LINEAR_COUNT], row.linear_count)
    row.exponential_count = _new_or(words[Attribute.EXPONENTIAL_COUNT], row.exponential_count)
    row.user_timeout = _new_or(words[Attribute.USER_TIMEOUT], row.user_timeout)
    row.peer = _new_or(words[Attribute.PEER], row.peer)
    row.expected_psn = _new_or(words[Attribute.EXPECTED_PSN], row.expected_psn)
    row.first_psn = _new_or(words[Attribute.FIRST_PSN], row.first_psn)


@kernel
def _new_or(value: int, old: int) -> int:
    return old if value == UNCHANGED else value


@kernel
def _begin_paths(engine: Engine, datapath: DataPath, now: int, qp: int) -> None:
    """Give the queue pair the entropy values of our sending sockets; some of each plane are its reserve."""
    nic = datapath.nic[0]
    for plane in range(nic.planes):
        engine.rotations[engine.qps[qp].rotation_base + plane].total = nic.evs
        for k in range(nic.evs):
            ev_states.set_ev(engine, qp, plane, k, int(datapath.ev_values[plane, k]))
    ev_states.begin(engine, now, qp, max(1, nic.evs - nic.evs // _ACTIVE_SHARE), 1)
