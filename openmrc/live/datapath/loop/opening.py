"""First contents of the data path's tables when a NIC opens, for programs in Python and for those in C.

A process without an interpreter begins with memory of zeros (`open_tables`); `build_datapath` fills the long tables
faster, after which `open_rows` is enough. Descriptors, entropy values and clocks are the caller's to fill: they come
from the operating system.
"""

from typing import Any

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.state.tables import NONE, Engine
from openmrc.live.datapath.libc import (
    BOTH_CONTROLS,
    IP_TOS,
    IPPROTO_IP,
    IPPROTO_IPV6,
    IPV6_TCLASS,
    SOL_UDP,
    UDP_SEGMENT,
    VECTOR_BYTES,
)
from openmrc.live.datapath.loop.leases import LEASE
from openmrc.live.datapath.rows import CONTROL_WORDS, DATAGRAM, NAME_BYTES, TRAIN_BYTES, DataPath
from openmrc.units import NEVER
from openmrc.wire.codes import DSCP, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ECT0, TrafficClass, Trim

_TOS_LENGTH, _SEGMENT_LENGTH = 16 + 4, 16 + 2  # bytes of the two control messages of an outgoing message
_TOS_OF_CLASS = tuple(DSCP[kind] << 2 | ECT0 for kind in TrafficClass)


@rare_kernel
def open_tables(engine: Engine, datapath: DataPath, version: int) -> None:
    """Write the first contents, which are zero before; `version` is that of the planes' IP addresses."""
    for index in range(len(datapath.cq_of)):
        datapath.cq_of[index, 0] = NONE
    for index in range(len(datapath.free_frames)):
        datapath.free_frames[index, 0] = index
    open_rows(engine, datapath, version)


@kernel
def open_rows(engine: Engine, datapath: DataPath, version: int) -> None:
    """Write what is not zero in a NIC's row and in the rows of its arenas."""
    _open_nic(engine, datapath)
    for kind in range(len(_TOS_OF_CLASS)):
        datapath.traffic[kind, 0] = _TOS_OF_CLASS[kind]
    datapath.trims[DSCP_TRIMMED, 0] = Trim.TRIMMED
    datapath.trims[DSCP_TRIMMED_LASTHOP, 0] = Trim.TRIMMED_LASTHOP
    _open_outgoing(datapath, version)
    _open_incoming(datapath)


@kernel
def _open_nic(engine: Engine, datapath: DataPath) -> None:
    nic = datapath.nic[0]
    nic.planes = len(datapath.planes)
    nic.evs = len(datapath.senders) // len(datapath.planes)
    nic.step_at = NEVER
    nic.link_fd = NONE
    nic.train_bytes = TRAIN_BYTES
    datapath.leases[0].poll_lease = LEASE
    nic.messages_at = _address(datapath.messages)
    nic.vectors_at = _address(datapath.vectors)
    nic.names_at = _address(datapath.names)
    nic.arrivals_at = _address(datapath.arrivals)
    nic.poll_at = _address(datapath.poll)
    nic.mutex_at = _address(datapath.mutex)
    nic.record_at = _address(datapath.record)
    engine.endpoints[0].address = len(engine.peers)  # peers are 0 .. max_peers - 1


@kernel
def _open_outgoing(datapath: DataPath, version: int) -> None:
    controls_at = _address(datapath.controls)
    for index in range(len(datapath.messages)):
        control = datapath.controls[index]
        control.tos_length = _TOS_LENGTH
        control.tos_kind = IPPROTO_IP | IP_TOS << 32 if version == 4 else IPPROTO_IPV6 | IPV6_TCLASS << 32
        control.segment_length = _SEGMENT_LENGTH
        control.segment_kind = SOL_UDP | UDP_SEGMENT << 32
        datapath.messages[index].control = controls_at + index * BOTH_CONTROLS


@kernel
def _open_incoming(datapath: DataPath) -> None:
    for index in range(len(datapath.arrivals)):
        arrival = datapath.arrivals[index]
        arrival.name = _address(datapath.arrival_names) + index * NAME_BYTES
        arrival.name_length = NAME_BYTES
        arrival.vectors = _address(datapath.arrival_vectors) + index * VECTOR_BYTES
        arrival.vector_count = 1
        arrival.control = _address(datapath.arrival_controls) + index * CONTROL_WORDS * 8
        arrival.control_length = CONTROL_WORDS * 8
        datapath.arrival_vectors[index].base = _address(datapath.staging) + index * DATAGRAM
        datapath.arrival_vectors[index].length = DATAGRAM


@kernel
def _address(rows: Any) -> int:
    return int(rows.ctypes.data)
