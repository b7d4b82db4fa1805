"""The description of tables and entries that C reads: a header, generated from the Python sources.

It holds a struct for every row type, the length of every table for each number of planes, the tunables for each path
MTU, the numbers that both languages use, and a C function for every entry. Nothing of it is written by hand, and the
build step writes it anew each time; its `MRC_LAYOUT_DIGEST` is that of the sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from types import SimpleNamespace
from typing import Any, cast, get_args, get_type_hints

import numpy as np

from openmrc.core.object_code import MATRIX, WORD, WORDS
from openmrc.core.rebase import instants_of
from openmrc.core.rows import dtype_of
from openmrc.ctl.endpoint_requests import MOST_REQUESTS
from openmrc.ctl.ev_events import MOST_EVENTS, MOST_QUEUES
from openmrc.ctl.profiles.cc_profile import CC_FIELDS
from openmrc.ctl.profiles.ev_configuration import EvLimits
from openmrc.ctl.profiles.ev_format import WIDTH_CAPS, EvFormatMode
from openmrc.ctl.profiles.ev_rules import (
    LEARN,
    REPORT,
    UNSET,
    ArraySource,
    EvEntryState,
    EvMode,
    EvOp,
    LimitColumn,
)
from openmrc.ctl.profiles.event_ring import RingColumn
from openmrc.ctl.profiles.field_rules import FieldColumn
from openmrc.ctl.profiles.refusals import CODE_BITS, ERRNO, ProfileRefusal
from openmrc.ctl.profiles.states import CcAttribute, EvAttribute, FormatAttribute, ProfileKind, ProfileState
from openmrc.ctl.profiles.store import MOST_PROFILES
from openmrc.engine.messages import MAX_MESSAGE
from openmrc.engine.paths.ports import CHECK_PROBE_ID, CONTROLLER_PROBE_ID
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.machines import EvEvent as EngineEvEvent
from openmrc.engine.state.machines import EvState, QpEvent, QpState
from openmrc.engine.state.params import CongestionAlgorithm, params_table
from openmrc.engine.state.queue_pairs import INFINITE_RETRIES
from openmrc.engine.state.tables import Cause, CompletionKind, Engine, EventKind, WcStatus
from openmrc.live.attributes import MAX_LINEAR, MAX_TIMEOUT, ContextAttr
from openmrc.live.datapath.handles import HANDLE_BYTES
from openmrc.live.datapath.libc import MUTEX_WORDS
from openmrc.live.datapath.loop import attendance, waiting
from openmrc.live.datapath.loop.leases import Attendant
from openmrc.live.datapath.loop.link_state import Fault
from openmrc.live.datapath.loop.operations import NO_EV, UNCHANGED, Attribute
from openmrc.live.datapath.loop.submission import ANY, SOLICITED, UNREGISTERED
from openmrc.live.datapath.packets.impair import NEXT_TRY, SHARE_ONE
from openmrc.live.datapath.remote_nics import Way
from openmrc.live.datapath.rows import COMMANDS, RECORD_BYTES, RECORDS, DataPath, build_datapath
from openmrc.live.host.interfaces import INTO_CONTAINERS, ON_HARDWARE
from openmrc.live.host.runtime import HELD, table_sizes
from openmrc.live.host.sockets import MAX_PLANES, MTUS, Sockets
from openmrc.live.host.tuning import settings_for
from openmrc.native.entries import ENTRIES
from openmrc.telemetry.totals import FIELDS as TOTALS
from openmrc.units import NEVER, PS_PER_NS, PS_PER_S
from openmrc.wire.codes import UDP_PORT
from openmrc.wire.entropy import PATH_BITS, PATHS_OF_A_PLANE, SRV6_PORT_BASE

# Rows that are never written take no memory, so these are the largest that a program may ask for.
SIZES = ContextAttr(max_qp=1024, max_peers=256, max_mr=4096, max_cq=2048, max_send_wr=4096, max_recv_wr=4096)

_ENUMS: tuple[type[IntEnum | IntFlag], ...] = (
    Attendant,
    Attribute,
    Cause,
    CompletionKind,
    EvEntryState,
    EvFormatMode,
    EvMode,
    EvState,
    ArraySource,
    EvAttribute,
    EventKind,
    Fault,
    FieldColumn,
    EvOp,
    EngineEvEvent,
    FormatAttribute,
    CcAttribute,
    CongestionAlgorithm,
    LimitColumn,
    ProfileKind,
    ProfileState,
    ProfileRefusal,
    QpEvent,
    QpState,
    RingColumn,
    WcStatus,
    Way,
)
_NUMBERS = {
    "MOST_PLANES": MAX_PLANES,
    "QPS": SIZES.max_qp,
    "PEERS": SIZES.max_peers,
    "REGIONS": SIZES.max_mr,
    "CQS": SIZES.max_cq,
    "SENDS": SIZES.max_send_wr,
    "RECEIVES": SIZES.max_recv_wr,
    "WIMMS": SIZES.max_wimm,
    "MPR": SIZES.max_mpr,
    "EVS_PER_PLANE": SIZES.evs_per_plane,
    "RECEIVE_BUFFER": SIZES.receive_buffer,
    "MAX_MESSAGE": MAX_MESSAGE,
    "MAX_TIMEOUT": MAX_TIMEOUT,
    "MAX_LINEAR": MAX_LINEAR,
    "INFINITE_RETRIES": INFINITE_RETRIES,
    "UNCHANGED": UNCHANGED,
    "ATTRIBUTES": len(Attribute),
    "RING_COLUMNS": len(RingColumn),
    "MOST_EV_EVENTS": MOST_EVENTS,
    "MOST_EV_QUEUES": MOST_QUEUES,
    "MOST_REQUESTS": MOST_REQUESTS,
    "CONTROLLER_PROBE_ID": CONTROLLER_PROBE_ID,
    "CONTROLLER_PROBES": CHECK_PROBE_ID - CONTROLLER_PROBE_ID,
    "TOTALS": len(TOTALS),
    "MOST_PROFILES": MOST_PROFILES,
    "MOST_FIELDS": EvLimits().max_fields,
    "UDP_EV_BITS": WIDTH_CAPS[EvFormatMode.UDP],
    "FIELD_COLUMNS": len(FieldColumn),
    "LIMIT_COLUMNS": len(LimitColumn),
    "LEARN": LEARN,
    "REPORT": REPORT,
    "UNSET": UNSET,
    "NO_EV": NO_EV,
    "REFUSALS": len(ProfileRefusal),
    "REFUSAL_BITS": CODE_BITS,
    "WAYS": len(Way),
    "MUTEX_WORDS": MUTEX_WORDS,
    "COMMANDS": COMMANDS,
    "RECORDS": RECORDS,
    "RECORD_BYTES": RECORD_BYTES,
    "HANDLE_BYTES": HANDLE_BYTES,
    "OWN_SLOTS": waiting.OWN_SLOTS,
    "SET_BACK": attendance.SET_BACK,
    "OLD": attendance.OLD,
    "ARMED_ANY": ANY,
    "ARMED_SOLICITED": SOLICITED,
    "UNREGISTERED": UNREGISTERED,
    "SHARE_ONE": SHARE_ONE,
    "UDP_PORT": UDP_PORT,
    "SOURCE_PORT_BASE": SRV6_PORT_BASE,
    "PATH_BITS": PATH_BITS,
    "PATHS_OF_A_PLANE": PATHS_OF_A_PLANE,
    "NEVER": NEVER,
    "PS_PER_S": PS_PER_S,
    "PS_PER_NS": PS_PER_NS,
    "NEXT_TRY": NEXT_TRY,
}
_C_TYPES = {
    "int64": "int64_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}
_C_TYPES["float64"] = "double"


def tables(planes: int, layout: TableSizes | None = None) -> dict[str, Any]:
    """Return a sample of all tables by name, the engine's first, as they are for so many planes."""
    engine = build(layout or table_sizes(SIZES, planes), settings_for(_sockets(True), MTUS[0]), packets=2)
    senders = planes * SIZES.evs_per_plane
    datapath = build_datapath(engine, planes, senders, SIZES.max_peers, SIZES.max_cq, HELD, 0)
    return {
        **{f"engine_{name}": np.asarray(rows) for name, rows in engine._asdict().items()},
        **{f"datapath_{name}": np.asarray(rows) for name, rows in datapath._asdict().items()},
    }


def header(digest: str) -> str:
    """Return the text of the generated header."""
    sample = tables(1)
    parts = (
        ["/* Generated by openmrc.native.description: do not edit. */", "#pragma once", "#include <stdint.h>", ""],
        [f'#define MRC_LAYOUT_DIGEST "{digest}"', f'#define MRC_TABLES_DIGEST "{tables_digest()}"', *_numbers(), ""],
        _structs(sample),
        _tables(sample),
        _lengths(),
        _instants(),
        _kinds(),
        _params(),
        _profiles(sample),
        _totals(sample),
        _entries(),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def tables_digest() -> str:
    """Return what tells whether a process lays out its tables as this one would."""
    sample = tables(1)
    lines = [*_structs(sample), *_tables(sample), *(str(len(rows)) for rows in sample.values())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _numbers() -> Iterator[str]:
    yield from (f"#define MRC_{name} {int(value)}LL" for name, value in _NUMBERS.items())
    for kind in _ENUMS:
        prefix = "".join("_" + letter if letter.isupper() else letter.upper() for letter in kind.__name__)
        yield from (f"#define MRC{prefix}_{member.name} {int(member)}" for member in kind)


def _structs(sample: dict[str, Any]) -> Iterator[str]:
    for name, rows in sample.items():
        if rows.dtype.fields is not None:
            yield f"struct mrc_{name} {{"
            for field in rows.dtype.names:
                kind = rows.dtype[field]
                base, count = (kind.base, f"[{kind.shape[0]}]") if kind.subdtype else (kind, "")
                yield f"    {_C_TYPES[base.name]} {field}{count};"
            yield "};"
            yield f'_Static_assert(sizeof(struct mrc_{name}) == {rows.dtype.itemsize}, "{name}");'
    yield ""


def _tables(sample: dict[str, Any]) -> Iterator[str]:
    """Yield the table of tables: the size of a row, or of an element of a matrix, its columns, and its handle."""
    yield "struct mrc_table { const char *name; int64_t bytes, columns, handle; };"
    yield f"#define MRC_TABLES {len(sample)}"
    yield "static const struct mrc_table mrc_tables[MRC_TABLES] = {"
    place = {"engine": 0, "datapath": HANDLE_BYTES}
    for name, rows in sample.items():
        half = name.split("_")[0]
        columns = rows.shape[1] if rows.ndim == 2 else 0
        yield f'    {{"{name}", {rows.dtype.itemsize}, {columns}, {place[half]}}},'
        place[half] += 8 * (5 + 2 * rows.ndim)
    yield "};"
    yield "enum {"
    yield from (f"    MRC_TABLE_{name.upper()} = {number}," for number, name in enumerate(sample))
    yield "};"
    yield ""


def _lengths() -> Iterator[str]:
    yield "static const int64_t mrc_lengths[MRC_MOST_PLANES][MRC_TABLES] = {"
    for planes in range(1, MAX_PLANES + 1):
        yield f"    {{{', '.join(str(len(rows)) for rows in tables(planes).values())}}},"
    yield "};"
    yield ""


def _sockets(segmentation: bool) -> Sockets:
    """Return what `settings_for` reads of the sockets."""
    return cast("Sockets", SimpleNamespace(segmentation=segmentation))


def _instants() -> Iterator[str]:
    """Yield where the fields that are times lie: the clock is set back before 64 bits of picoseconds are over."""
    yield "struct mrc_instant { int32_t table, bytes, offset; };"
    yield "static const struct mrc_instant mrc_instants[] = {"
    place = 0
    for kind in (Engine, DataPath):
        for hint in get_type_hints(kind, include_extras=True).values():
            rows = [row for row in get_args(hint) if isinstance(row, type)]
            for name in instants_of(rows[0]) if rows else []:
                layout: Any = dtype_of(rows[0])
                field, offset = layout.fields[name][:2]
                yield from (f"    {{{place}, {layout.itemsize}, {offset + at}}}," for at in range(0, field.itemsize, 8))
            place += 1
    yield "};"
    yield ""


def _kinds() -> Iterator[str]:
    """Yield the kinds of links that can be planes, as the kernel names them."""
    for name, kinds in (("on_hardware", ON_HARDWARE), ("into_containers", INTO_CONTAINERS)):
        words = ", ".join(f'"{kind}"' for kind in sorted(kinds))
        yield f"static const char *const mrc_kinds_{name}[] = {{{words}}};"


def _params() -> Iterator[str]:
    """Yield the tunables, a row for each path MTU, without and with UDP_SEGMENT."""
    yield f"static const int64_t mrc_mtus[{len(MTUS)}] = {{{', '.join(str(mtu) for mtu in MTUS)}}};"
    rows = [[np.asarray(params_table(settings_for(_sockets(segments), mtu))) for segments in (False, True)]
            for mtu in MTUS]  # fmt: skip
    words = rows[0][0].view(np.int64).size
    yield f"static const int64_t mrc_params[{len(MTUS)}][2][{words}] = {{"
    for pair in rows:
        yield "    {"
        yield from ("        {" + ", ".join(f"{word}LL" for word in row.view(np.int64)) + "}," for row in pair)
        yield "    },"
    yield "};"
    yield ""


def _profiles(sample: dict[str, Any]) -> Iterator[str]:
    """Yield the errno of each refusal, and what the values of a congestion control profile may be and become."""
    errnos = ", ".join(str(ERRNO[each]) for each in ProfileRefusal)
    yield f"static const int32_t mrc_refusals[MRC_REFUSALS] = {{{errnos}}};"
    layout = sample["engine_params"].dtype
    yield "struct mrc_cc_field { const char *name; int32_t offset; char kind; int64_t scale; double least, most; };"
    yield f"static const struct mrc_cc_field mrc_cc_fields[{len(CC_FIELDS)}] = {{"
    for name, field in CC_FIELDS.items():
        kind, offset = layout.fields[field.tunable][:2]
        assert kind.char in "dl?", name  # a double, 64 bits, a flag of one byte
        yield f"    {{\"{name}\", {offset}, '{kind.char}', {field.scale}LL, {field.least!r}, {float(field.most)!r}}},"
    yield "};"
    yield ""


def _totals(sample: dict[str, Any]) -> Iterator[str]:
    """Yield where the counters of a queue pair lie that outlive it."""
    yield "struct mrc_total { int32_t offset, bytes; };"
    yield "static const struct mrc_total mrc_totals[MRC_TOTALS] = {"
    layout = sample["engine_qps"].dtype
    yield from (f"    {{{layout.fields[name][1]}, {layout.fields[name][0].itemsize}}}," for name in TOTALS)
    yield "};"
    yield ""


def _entries() -> Iterator[str]:
    """Yield the declaration of each compiled function, and a C function with the arguments that a caller has."""
    yield "int64_t mrc_entry_failed(const char *name);"
    for name, entry in ENTRIES.items():
        machine, caller, passed = [], [], []
        for argument, kind in zip(entry.names, entry.arguments, strict=True):
            declared, taken, given = _argument(argument, kind)
            machine += declared
            caller += taken
            passed += given
        yield f"extern int32_t mrc_entry_{name}(int64_t *result, void **exception, {', '.join(machine)});"
        yield f"static inline int64_t mrc_{name}({', '.join(caller)})"
        yield "{"
        yield "    int64_t result = 0;"
        yield "    void *exception = 0;"
        yield f"    if (mrc_entry_{name}(&result, &exception, {', '.join(passed)}) != 0)"
        yield f'        return mrc_entry_failed("{name}");'
        yield "    return result;"
        yield "}"


def _argument(name: str, kind: Any) -> tuple[list[str], list[str], list[str]]:
    """Return how compiled code declares an argument, how a caller in C does, and how one becomes the other."""
    if kind is WORD:
        return [f"int64_t {name}"], [f"int64_t {name}"], [name]
    array = ["void *", "void *", "int64_t", "int64_t", "int64_t *"]
    if kind is WORDS:
        passed = ["0", "0", f"{name}_count", "8", name, f"{name}_count", "8"]
        return [*array, "int64_t", "int64_t"], [f"int64_t *{name}", f"int64_t {name}_count"], passed
    assert kind is MATRIX
    rows, columns = f"{name}_rows", f"{name}_columns"
    passed = ["0", "0", f"{rows} * {columns}", "8", name, rows, columns, f"{columns} * 8", "8"]
    return [*array, *["int64_t"] * 4], [f"int64_t *{name}", f"int64_t {rows}", f"int64_t {columns}"], passed
