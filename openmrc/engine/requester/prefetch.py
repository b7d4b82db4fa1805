"""Prefetching of the rows that packets need: with many connections they are in no near cache.

Each step prefetches what the rows of the step before refer to, so a caller takes the first step for several packets
before the second for any. Nothing else is changed.
"""

from openmrc.core.jit import kernel
from openmrc.core.memory import prefetch_lines, prefetch_row
from openmrc.core.rows import CACHE_LINE, dtype_of
from openmrc.engine.state import tracker
from openmrc.engine.state.queue_pairs import message_index, place_of, sent_index
from openmrc.engine.state.tables import NONE, Endpoint, Engine, Port
from openmrc.wire.codes import Opcode

# Cache lines of a queue pair and of a peer, by the order of their fields.
RESPONDER, RESPONDER_LINES = 0, 4
REQUESTER, REQUESTER_LINES = 2, 6
SHARED_LINES, WINDOW_LINES = 1, 3
ENDPOINT_LINES = -(-dtype_of(Endpoint).itemsize // CACHE_LINE)
PORT_BYTES = dtype_of(Port).itemsize
CONTROL_LINES = 4
TURNS = 4  # peers ahead in the order of transmission


@kernel
def for_endpoint(engine: Engine, endpoint: int) -> None:
    """Prefetch an endpoint that will be served soon."""
    prefetch_lines(engine.endpoints, endpoint, 0, ENDPOINT_LINES)


@kernel
def after_endpoint(engine: Engine, endpoint: int) -> None:
    """Prefetch what an endpoint refers to for any packet: its ports and the next of its control ring."""
    node = engine.endpoints[endpoint]
    prefetch_lines(engine.ports, node.port_base, 0, 1 + (node.port_count * PORT_BYTES) // CACHE_LINE)
    prefetch_lines(engine.control, node.control_base + (node.control_tail & node.control_mask), 0, CONTROL_LINES)


@kernel
def for_arrival(engine: Engine, endpoint: int, qpn: int, opcode: int) -> None:
    """Prefetch the queue pair of a packet that `endpoint.receive` will process soon."""
    qp = place_of(engine, endpoint, qpn)
    if opcode <= Opcode.WRITE_ONLY_IMM:
        prefetch_lines(engine.qps, qp, RESPONDER, RESPONDER_LINES)
    else:
        prefetch_lines(engine.qps, qp, REQUESTER, REQUESTER_LINES)


@kernel
def after_queue_pair(engine: Engine, endpoint: int, qpn: int, opcode: int, psn: int) -> None:
    """Prefetch what the queue pair of an arriving packet refers to."""
    qp = place_of(engine, endpoint, qpn)
    if qp == NONE:
        return
    row = engine.qps[qp]
    if opcode <= Opcode.WRITE_ONLY_IMM:
        prefetch_lines(engine.peers, row.peer, 0, SHARED_LINES)
        prefetch_row(engine.tracker, tracker.place_of(engine, qp, psn))
    else:
        prefetch_lines(engine.peers, row.peer, 0, WINDOW_LINES)
        prefetch_row(engine.sent, sent_index(engine, qp, row.unack_psn))
    prefetch_row(engine.rotations, row.rotation_base)


@kernel
def for_turns(engine: Engine, endpoint: int) -> None:
    """Prefetch what the next peers in turn need to send; where few take turns, it is near already."""
    node = engine.endpoints[endpoint]
    if node.ready_count <= TURNS:
        return
    front = engine.peers[node.ready_tail].next_ready
    second = engine.peers[front].next_ready
    third = engine.peers[second].next_ready
    prefetch_lines(engine.peers, engine.peers[third].next_ready, 0, SHARED_LINES)
    prefetch_lines(engine.qps, engine.peers[third].ready_tail, REQUESTER, REQUESTER_LINES)
    _for_sending(engine, engine.peers[second].ready_tail)
    _for_path(engine, engine.peers[front].ready_tail)


@kernel
def _for_sending(engine: Engine, qp: int) -> None:
    if qp != NONE:
        row = engine.qps[qp]
        prefetch_lines(engine.messages, message_index(engine, qp, row.message_current), 0, 2)
        prefetch_row(engine.sent, sent_index(engine, qp, row.next_psn))
        prefetch_row(engine.rotations, _next_rotation(engine, qp))


@kernel
def _for_path(engine: Engine, qp: int) -> None:
    if qp != NONE:
        rotation = engine.rotations[_next_rotation(engine, qp)]
        if rotation.cursor < rotation.active:
            prefetch_row(engine.evs, rotation.ev_base + engine.slots[rotation.ev_base + rotation.cursor].ev)


@kernel
def _next_rotation(engine: Engine, qp: int) -> int:
    row = engine.qps[qp]
    return row.rotation_base + (row.rotation_cursor + 1) % row.rotation_count
