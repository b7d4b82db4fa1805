"""Shares of ports: a port that passes on less than the others gets less.

Ports are used in turn and would all get the same (`spray`). If one is slower, what it gets waits there, is overtaken by
more and more, counts as lost, and the whole flow is sent at the slowest port's rate. A port's rate shows in the time
from the departure of its packets to the answers: where that grows beyond the delay of the fastest port, the share of a
turn shrinks by as much; otherwise it grows by a sixteenth of a turn, once per round trip of that port in either case.
Parts of a turn are saved up until they are worth a packet (deficit round robin, Shreedhar and Varghese 1995).

No port gets less than a 64th: it must be seen when it becomes faster.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.paths import silence
from openmrc.engine.state.queue_pairs import params_of
from openmrc.engine.state.tables import Engine

FULL = 1024
LEAST = FULL // 64
_GROWTH = FULL // 16
_UNIT = 20  # bits of a time in ps that `PortShare.delay` leaves out
_WEIGHT = 2  # bits: a sample counts a quarter, because a port with a small share has few
_LONGEST = 1 << 30


@kernel
def begin(engine: Engine, rotation: int) -> None:
    """Give a port of a new queue pair a full turn; rows that are not written take no memory."""
    engine.rotations[rotation].is_slow = False
    row = engine.port_shares[rotation]
    if row.delay > 0:
        row.delay = 0
        row.judged_at = 0
        row.credit = 0
        row.share = 0


@kernel
def on_delivered(engine: Engine, now: int, ev: int, sent_at: int) -> None:
    """Learn from a packet that was sent once, at `sent_at` (ps), and is reported now."""
    rotation = engine.evs[ev].rotation
    row = engine.port_shares[rotation]
    delay = min((now - sent_at) >> _UNIT, _LONGEST)
    row.delay = delay if row.delay == 0 else row.delay + ((delay - row.delay) >> _WEIGHT)
    if sent_at > row.judged_at:
        row.judged_at = now
        _judge(engine, rotation)


@kernel
def _judge(engine: Engine, rotation: int) -> None:
    """Change the share of a port by its delay."""
    row, port = engine.port_shares[rotation], engine.rotations[rotation]
    share = int(row.share) if port.is_slow else FULL
    allowed = _allowed(engine, port.qp)
    if row.delay > allowed:
        share = max(share * max(allowed, row.delay >> 1) // row.delay, LEAST)
    else:
        share = min(share + _GROWTH, FULL)
    if port.is_slow or share < FULL:
        row.share = share
        row.credit = row.credit if port.is_slow else 0
        port.is_slow = share < FULL


@kernel
def _allowed(engine: Engine, qp: int) -> int:
    """Return the delay that is no sign of a slow port: half as much again as the fastest, or the target delay more."""
    row = engine.qps[qp]
    ports = silence.data_ports(engine, qp)
    least = _LONGEST
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        delay = int(engine.port_shares[index].delay)
        if (ports >> engine.rotations[index].port) & 1 == 1 and delay > 0:
            least = min(least, delay)
    return int(least + max(least >> 1, params_of(engine, qp).target_delay >> _UNIT))


@rare_kernel
def has_turn(engine: Engine, rotation: int, turn: int, size: int) -> bool:
    """Save up a slow port's part of `turn` bytes; return whether it is enough for a packet of `size` bytes."""
    row = engine.port_shares[rotation]
    row.credit = min(row.credit + turn * row.share // FULL, turn)
    return bool(row.credit >= size)


@rare_kernel
def take_turn(engine: Engine, rotation: int) -> int:
    """Return how many bytes of a turn a slow port gets."""
    row = engine.port_shares[rotation]
    credit = int(row.credit)
    row.credit = 0
    return credit
