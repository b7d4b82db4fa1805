"""Silent ports: what is sent on them is lost, so no data is sent there before something has arrived again.

A bad EV is left when it has lost a packet (`paths`). When a whole plane fails, each of its EVs would have to lose one,
and each loss is found a round trip later. So when two EVs of a port have been lost in a row, with nothing sent later
having arrived there, the other ports of the queue pair carry its data. EVs of the silent port are probed one after the
other: at once, after a round trip, then after twice as long each time; an answer ends the silence. If only some of its
paths fail, that takes a round trip or two. MRC leaves the choice of paths to the sender (MRC §9.3.1).

Queue pairs of one endpoint share what they find, as TCP connections may (RFC 9040): a port that is silent towards two
peers is silent for all, until something sent later arrives at any of them.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.state import events, timers
from openmrc.engine.state.queue_pairs import params_of, round_trip, usable_ports, working_ports
from openmrc.engine.state.tables import NONE, Deadline, Engine, EventKind, Sent

_EVS = 2  # lost in a row: one may have been a broken path of a plane that works


@kernel
def begin(engine: Engine, rotation: int) -> None:
    """Expect a port of a new queue pair to deliver."""
    row = engine.rotations[rotation]
    row.newest_delivered = -1
    row.lost_in_a_row = 0


@kernel
def on_delivered(engine: Engine, now: int, ev: int, sent_at: int) -> bool:
    """Record that a packet or a probe sent at `sent_at` (ps) has arrived; return whether it ended a silence."""
    rotation = engine.evs[ev].rotation
    row = engine.rotations[rotation]
    if sent_at <= row.newest_delivered:
        return False
    row.newest_delivered = sent_at
    endpoint = engine.qps[row.qp].endpoint
    if engine.endpoints[endpoint].doubted_ports != 0:
        _end_doubt(engine, endpoint, row.port, sent_at)
    was_silent = row.lost_in_a_row == _EVS
    if row.lost_in_a_row > 0:
        end(engine, now, rotation)
    return was_silent


@rare_kernel
def on_retired(engine: Engine, now: int, rotation: int, sent_at: int) -> None:
    """Record that an EV has lost a packet sent at `sent_at` (ps) and is no longer used."""
    row = engine.rotations[rotation]
    if sent_at <= row.newest_delivered or row.lost_in_a_row == _EVS or not params_of(engine, row.qp).silence:
        return
    row.lost_in_a_row += 1
    if row.lost_in_a_row == _EVS:
        queue_pair = engine.qps[row.qp]
        queue_pair.silent_ports |= 1 << row.port
        engine.port_returns[rotation].check_gap = round_trip(engine, queue_pair.peer)
        engine.port_returns[rotation].check_at = now
        timers.arm_by(engine, row.qp, Deadline.PROBE, now)
        _doubt(engine, row.qp, row.port, sent_at)
        _notify(engine, now, rotation, 1)


@rare_kernel
def end(engine: Engine, now: int, rotation: int) -> None:
    """Let a queue pair use the port again."""
    row = engine.rotations[rotation]
    if row.lost_in_a_row == _EVS:
        _notify(engine, now, rotation, 0)
    row.lost_in_a_row = 0
    engine.qps[row.qp].silent_ports &= ~(1 << row.port)


@rare_kernel
def forget(engine: Engine, qp: int) -> None:
    """Forget the silent ports of a queue pair that ends: it probes them no more, so others have to find out anew."""
    row = engine.qps[qp]
    forget_ports(engine, row.endpoint, row.silent_ports)
    row.silent_ports = 0


@rare_kernel
def forget_ports(engine: Engine, endpoint: int, ports: int) -> None:
    """Forget what queue pairs shared about the ports of a mask."""
    node = engine.endpoints[endpoint]
    node.doubted_ports &= ~ports
    node.silent_ports &= ~ports


@kernel
def silent_ports(engine: Engine, qp: int) -> int:
    """Return the mask of ports that are silent towards the peer of a queue pair, or towards all."""
    row = engine.qps[qp]
    return int(row.silent_ports | engine.endpoints[row.endpoint].silent_ports)


@kernel
def data_ports(engine: Engine, qp: int) -> int:
    """Return the mask of ports for data: those that work and are not silent, or all that work if there are no such."""
    silent = silent_ports(engine, qp)
    if silent != 0:
        others = usable_ports(engine, qp) & ~silent
        if others != 0:
            return others
    return working_ports(engine, qp)


@kernel
def is_doubted(engine: Engine, qp: int, sent: Sent) -> bool:
    """Return whether a packet left on a port that is silent towards some peer, and nothing later arrived there."""
    node = engine.endpoints[engine.qps[qp].endpoint]
    if node.doubted_ports == 0:
        return False
    ev = engine.evs[sent.ev]
    is_doubted = (node.doubted_ports >> ev.port) & 1 == 1
    return is_doubted and sent.sent_at > engine.rotations[ev.rotation].newest_delivered


@rare_kernel
def _doubt(engine: Engine, qp: int, port: int, sent_at: int) -> None:
    """Record that a port is silent towards a peer; it is silent for all queue pairs if it was so towards another."""
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    shared = engine.ports[node.port_base + port]
    shared.silences += 1
    if (node.doubted_ports >> port) & 1 == 0:
        node.doubted_ports |= 1 << port
        shared.silent_peer = row.peer
        shared.silent_since = sent_at
        return
    shared.silent_since = max(shared.silent_since, sent_at)
    if shared.silent_peer != row.peer:
        node.silent_ports |= 1 << port


@rare_kernel
def _end_doubt(engine: Engine, endpoint: int, port: int, sent_at: int) -> None:
    """End the doubt about a port, if there is one, when something has arrived that was sent after the losses."""
    node = engine.endpoints[endpoint]
    if (node.doubted_ports >> port) & 1 == 1 and sent_at > engine.ports[node.port_base + port].silent_since:
        forget_ports(engine, endpoint, 1 << port)


@kernel
def _notify(engine: Engine, now: int, rotation: int, is_silent: int) -> None:
    row = engine.rotations[rotation]
    qp = engine.qps[row.qp]
    index = events.claim(engine, now, qp.endpoint, EventKind.SILENT_PORT)
    if index != NONE:
        event = engine.events[index]
        event.qp = row.qp
        event.peer = qp.peer
        event.port = row.port
        event.state = is_silent
