"""Endpoint operations, sent to QPN 2: EV Probe and Port Status Update (MRC §7.5.6).

They are connectionless and best effort. A request is answered on the path it arrived on; a response is matched by its
probe_id.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.paths import ports
from openmrc.engine.responder import reverse
from openmrc.engine.state import clock, control_queue, events
from openmrc.engine.state.tables import NONE, Engine, EventKind
from openmrc.units import PS_PER_NS
from openmrc.wire.codes import EndpointOp, Opcode

_PROBE_ID_MASK = 0xFFFF


@rare_kernel
def receive(engine: Engine, now: int, endpoint: int, packet: int) -> None:
    """Process a packet to QPN 2; packets of unknown senders are counted and dropped."""
    arrived = engine.packets[packet]
    peer = _peer(engine, endpoint, arrived.source)
    if peer == NONE:
        engine.endpoints[endpoint].wrong_source += 1
        return
    engine.ports[engine.endpoints[endpoint].port_base + arrived.port].control_received += 1
    probe_id = arrived.psn & _PROBE_ID_MASK
    match arrived.opcode:
        case Opcode.ENDPOINT_REQUEST:
            if arrived.endpoint_op == EndpointOp.PORT_STATUS_UPDATE:
                if not ports.is_consistent(arrived.port_status_mask, arrived.port):
                    engine.endpoints[endpoint].contradictions += 1
                    return
                if not ports.is_overtaken(engine, now, peer, packet):
                    ports.set_remote(engine, now, peer, arrived.port_status_mask)
            _answer(engine, endpoint, peer, packet, probe_id)
        case Opcode.ENDPOINT_RESPONSE:
            if probe_id >= ports.CHECK_PROBE_ID:
                ports.on_answer(engine, now, peer, probe_id, arrived.port)
            elif probe_id >= ports.CONTROLLER_PROBE_ID:
                _report(engine, now, endpoint, peer, packet)
            else:
                reverse.on_answer(engine, peer, probe_id, packet)
        case _:
            engine.endpoints[endpoint].unknown_opcode += 1


@kernel
def _report(engine: Engine, now: int, endpoint: int, peer: int, packet: int) -> None:
    """Report the answer to a request of a controller, with its round trip."""
    arrived = engine.packets[packet]
    index = events.claim(engine, now, endpoint, EventKind.ENDPOINT_RESPONSE)
    if index == NONE:
        return
    event = engine.events[index]
    event.peer = peer
    event.port = arrived.port
    event.entropy = arrived.entropy
    event.state = arrived.psn & _PROBE_ID_MASK
    event.cause = clock.elapsed(now, arrived.tx_timestamp, arrived.timestamp_unit) // PS_PER_NS


@kernel
def _answer(engine: Engine, endpoint: int, peer: int, packet: int, probe_id: int) -> None:
    arrived = engine.packets[packet]
    index = control_queue.claim(engine, endpoint, Opcode.ENDPOINT_RESPONSE, NONE, peer)
    if index == NONE:
        return
    waiting = engine.control[index]
    waiting.psn = probe_id
    waiting.reason = arrived.endpoint_op
    waiting.port = arrived.port
    waiting.entropy = arrived.entropy
    waiting.tx_timestamp = arrived.tx_timestamp
    waiting.timestamp_unit = arrived.timestamp_unit


@kernel
def _peer(engine: Engine, endpoint: int, address: int) -> int:
    node = engine.endpoints[endpoint]
    if address == NONE:
        return NONE  # the address of unused peer rows
    for peer in range(node.peer_base, node.peer_base + node.peer_count):
        if engine.peers[peer].address == address:
            return peer
    return NONE
