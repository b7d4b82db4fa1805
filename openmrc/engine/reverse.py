"""The reverse path: a responder with nothing to send tests its control paths by EV probes (MRC §6.5.2, §7.4.7).

One probe at a time, over the rotations in turn, each on a random EV. An answer makes that EV the rotation's
reverse EV; silence until the rotation's next turn makes control packets prefer other rotations. A duplicate or a
reliability probe shows that answers may be lost: then the next control packets take other EVs at once.
"""

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import control_queue, spray, timers
from openmrc.engine.queue_pairs import params_of
from openmrc.engine.tables import NONE, Deadline, Engine
from openmrc.wire.codes import EndpointOp, Opcode

_ROTATION_BITS = 4  # of a probe_id: which rotation; the other 12 name the queue pair
MAX_QPS = 0xE00  # queue pairs of an endpoint beyond this many do not probe: their ids belong to `ports`


@rare_kernel
def on_deadline(engine: Engine, now: int, qp: int) -> None:
    """Probe the next rotation, if data came in and none went out since the last time."""
    row = engine.qps[qp]
    timers.disarm(engine, qp, Deadline.REVERSE)
    received = row.data_since_reverse
    row.data_since_reverse = 0
    if received == 0:
        return  # idle: the next data packet arms the deadline again
    if row.unack_psn == row.next_psn:
        _probe(engine, qp)
    interval = params_of(engine, qp).reverse_probe_interval
    timers.arm(engine, qp, Deadline.REVERSE, now + max(interval, engine.peers[row.peer].base_rtt))


@rare_kernel
def on_answer(engine: Engine, peer: int, probe_id: int) -> None:
    """Take a peer's answer to an EV probe: its EV serves the rotation's control packets now."""
    node = engine.endpoints[engine.peers[peer].endpoint]
    index = probe_id >> _ROTATION_BITS
    if index >= min(node.qp_count, MAX_QPS):
        return
    row = engine.qps[node.qp_base + index]
    number = probe_id & ((1 << _ROTATION_BITS) - 1)
    if row.peer != peer or number >= row.rotation_count:
        return
    rotation = engine.rotations[row.rotation_base + number]
    if rotation.reverse_probe == 1:
        rotation.reverse_probe = 0
        rotation.reverse_ok = 1
        rotation.reverse = rotation.reverse_candidate


@rare_kernel
def on_doubt(engine: Engine, qp: int) -> None:
    """An answer may be lost: let the next ones take random EVs, on the planes that data came by or on any.

    Random, because SACKs and transport ACKs that alternate over two planes would always meet the same one. Any plane at
    every other time, because the planes that work here and those that work back may be different ones; what EV probes
    have found is forgotten, because they need both.
    """
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    node.random = rng.following(node.random)
    row.control_rotation = rng.below(node.random, row.rotation_count)
    if node.random & 1 == 1:
        row.heard_ports = (1 << row.rotation_count) - 1
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        rotation = engine.rotations[index]
        rotation.reverse_ok = 1
        if rotation.active > 0:
            node.random = rng.following(node.random)
            position = rng.below(node.random, rotation.active)
            rotation.reverse = rotation.ev_base + engine.slots[rotation.ev_base + position].ev


@kernel
def _probe(engine: Engine, qp: int) -> None:
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    if qp - node.qp_base >= MAX_QPS:
        return
    row.reverse_cursor = (row.reverse_cursor + 1) % row.rotation_count
    rotation = engine.rotations[row.rotation_base + row.reverse_cursor]
    if (spray.working_ports(engine, qp) >> rotation.port) & 1 == 0:
        return
    if rotation.reverse_probe == 1:
        rotation.reverse_ok = 0
    index = control_queue.claim(engine, row.endpoint, Opcode.ENDPOINT_REQUEST, NONE, row.peer)
    if index == NONE:
        return
    node.random = rng.following(node.random)
    rotation.reverse_candidate = rotation.ev_base + rng.below(node.random, rotation.total)
    rotation.reverse_probe = 1
    waiting = engine.control[index]
    waiting.psn = ((qp - node.qp_base) << _ROTATION_BITS) | row.reverse_cursor
    waiting.reason = EndpointOp.EV_PROBE
    waiting.port = rotation.port
    waiting.entropy = engine.evs[rotation.reverse_candidate].value
