"""Paths of the queue pairs, and the votes that EVs cast for them."""

from __future__ import annotations

import msgspec

from openmrc.ctl.device import COUNTED, CtlDevice, EvReport, QpReport


class PathsQuery(msgspec.Struct, kw_only=True):
    """Which queue pairs; 0: all."""

    qpn: int = 0


class PathsReply(msgspec.Struct, kw_only=True):
    """Queue pairs with their EVs."""

    queue_pairs: list[QpReport]


class VotesQuery(msgspec.Struct, kw_only=True):
    """Which votes; 0: of all ports."""

    port: int = 0


class Vote(msgspec.Struct, kw_only=True, array_like=True):
    """What was sent on one path, and what came of it, over all queue pairs to this peer since the endpoint opened."""

    peer: str  # its address on the port
    port: int
    ev: int
    path: str  # where the packets are sent: the SRv6 carrier, or the peer's address
    denied: bool = False
    sent: int = 0
    acked: int = 0  # delivered
    lost: int = 0
    marked: int = 0
    trimmed: int = 0
    probes: int = 0


class VotesReply(msgspec.Struct, kw_only=True):
    """Votes by peer, port and EV. Counters only grow; of more than 65,536 paths the oldest are forgotten."""

    votes: list[Vote]


def paths(device: CtlDevice, request: PathsQuery) -> PathsReply:
    """Return queue pairs with the states of their EVs."""
    found = [each for each in device.queue_pairs() if request.qpn in (0, each.qpn)]
    return PathsReply(queue_pairs=found)


def votes(device: CtlDevice, request: VotesQuery) -> VotesReply:
    """Return the votes of all queue pairs, added up by path."""
    sums: dict[tuple[str, int, int], Vote] = {}
    for pair in (*device.queue_pairs(), *device.departed()):
        for ev in pair.evs:
            if request.port in (0, ev.port):
                peer = pair.peer[ev.port - 1]
                vote = sums.setdefault((peer, ev.port, ev.ev), Vote(peer=peer, port=ev.port, ev=ev.ev, path=ev.path))
                _add(vote, ev)
    return VotesReply(votes=list(sums.values()))


def _add(vote: Vote, ev: EvReport) -> None:
    for name in COUNTED:
        setattr(vote, name, getattr(vote, name) + getattr(ev, name))
    vote.denied |= ev.state == "DENIED"
