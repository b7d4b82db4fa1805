"""Two classes of data on one port, each with a share of its rate while both wait, and a buffer of its own.

As `egress` does, this decides the departure of a packet on arrival. What each class has still to send follows the
fluid model of weighted fair queueing (GPS; Parekh and Gallager 1993): while both wait, each is served at its share, and
alone at the full rate. A packet leaves when the fluid model would finish it if nothing else came. Exact: the work that
is left of each class, the order within a class, the rate over more than a queue's length. Approximate: what arrives
later in the other class delays later packets, not those that wait already. A share of 0 is strict priority.
"""

from openmrc.core.jit import kernel
from openmrc.sim.network.network_tables import ClassShares, Network, Service


@kernel
def data_service(network: Network, flow: int) -> int:
    """Return the service of a message's data packets."""
    return Service.SECOND.value if network.flows[flow].second_class else Service.DATA.value


@kernel
def waiting(network: Network, link: int, now: int, service: int) -> int:
    """Bring the port up to date; return the time to send what waits in a class alone (ps)."""
    row = network.class_shares[link]
    _drain(row, now, network.ports[link].control_until)
    return int(row.second if service == Service.SECOND else row.first)


@kernel
def add(network: Network, link: int, now: int, service: int, duration: int) -> int:
    """Add a packet of `duration` ps to a class whose port is up to date; return when it leaves (ps)."""
    row = network.class_shares[link]
    begins = max(now, row.at)
    if service == Service.SECOND:
        row.second += duration
        departs = begins + int(_served(row.second, row.first, row.share))
        row.second_departs = max(departs, row.second_departs)
        departs = row.second_departs
    else:
        row.first += duration
        departs = begins + int(_served(row.first, row.second, 1.0 - row.share))
        row.first_departs = max(departs, row.first_departs)
        departs = row.first_departs
    network.ports[link].busy_until = begins + int(row.first + row.second)
    return departs


@kernel
def hold(network: Network, link: int, duration: int) -> None:
    """Let a control packet go first: what waits is served later by its duration (ps)."""
    network.class_shares[link].at += duration


@kernel
def _served(own: float, other: float, share: float) -> float:
    """Return the time until `own` work is done beside `other` work (ps)."""
    if share <= 0.0:
        return own + other
    return own + min(other, own * (1.0 - share) / share)


@kernel
def _drain(row: ClassShares, now: int, control_until: int) -> None:
    """Serve both classes up to `now`; an idle port begins after the control packets that it sends."""
    left = float(now - row.at)
    if left > 0.0 and row.first > 0.0 and row.second > 0.0:
        together = _together(row)
        passed = min(left, together)
        row.first = max(0.0, row.first - passed * (1.0 - row.share))
        row.second = max(0.0, row.second - passed * row.share)
        if passed == together:
            _empty_one(row)
        left -= passed
    if left > 0.0:
        passed = min(left, row.first)
        row.first -= passed
        row.second = max(0.0, row.second - (left - passed))
    row.at = max(row.at, now)
    if row.first <= 0.0 and row.second <= 0.0:
        row.at = max(now, control_until)


@kernel
def _together(row: ClassShares) -> float:
    """Return how long both classes will wait (ps)."""
    first = row.first / (1.0 - row.share)
    return first if row.share <= 0.0 else min(first, row.second / row.share)


@kernel
def _empty_one(row: ClassShares) -> None:
    """Clear the class that has nothing left, whatever was rounded."""
    if row.first * row.share <= row.second * (1.0 - row.share):
        row.first = 0.0
    else:
        row.second = 0.0
