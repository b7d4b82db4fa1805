"""Match sends with receives, and the operations of several ranks that form one collective.

Messages match by sender, receiver and tag, collectives by their group, each in the order of the ranks' files. An
unmatched operation raises ConfigError with file and node.
"""

from dataclasses import dataclass

import numpy as np

from openmrc.collectives.choice import Collective
from openmrc.sim.workloads.traces.operations import NONE, Ids, OperationKind, Operations


@dataclass(frozen=True)
class Matched:
    """Sends with their receives, and collectives with their members; all are rows of operations."""

    send: Ids
    receive: Ids  # of the send at the same index
    instance: Ids  # by row: its collective, or NONE
    members: list[Ids]  # by collective: its rows, in the order of its group


def matched(made: Operations) -> Matched:
    """Match all operations; refuse unmatched ones."""
    send, receive = _messages(made)
    instance, members = _collectives(made)
    return Matched(send, receive, instance, members)


def _messages(made: Operations) -> tuple[Ids, Ids]:
    kind, rank, peer, tag = (made.column(name) for name in ("kind", "rank", "peer", "tag"))
    rows = [np.flatnonzero(kind == each) for each in (OperationKind.SEND, OperationKind.RECEIVE)]
    keys = [
        np.stack([rank[rows[0]], peer[rows[0]], tag[rows[0]]], axis=1),
        np.stack([peer[rows[1]], rank[rows[1]], tag[rows[1]]], axis=1),
    ]
    keyed = np.unique(np.concatenate(keys), axis=0, return_inverse=True)[1].ravel()
    split = len(rows[0])
    sends, receives = (_in_turn(part) for part in (keyed[:split], keyed[split:]))
    for mine, others, which, word in ((sends, receives, 0, "receive"), (receives, sends, 1, "send")):
        alone = np.flatnonzero(~np.isin(mine, others))
        if len(alone):
            row = int(rows[which][alone[0]])
            ways = (rank[row], peer[row]) if which == 0 else (peer[row], rank[row])
            made.refuse(
                row,
                f"no {word} matches it: from rank {ways[0]} to rank {ways[1]}, tag {tag[row]} "
                f"({len(alone):,} unmatched)",
            )
    paired = rows[0][np.argsort(sends)], rows[1][np.argsort(receives)]
    _refuse_short(made, *paired)
    order = np.argsort(paired[0])
    return paired[0][order], paired[1][order]


def _in_turn(key: Ids) -> Ids:
    """Return a number for each row that is unique per key and occurrence; occurrences count in row order."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.searchsorted(ordered, ordered)
    turn = np.empty(len(key), np.int64)
    turn[order] = np.arange(len(key)) - first
    return key * (1 << 32) + turn


def _refuse_short(made: Operations, send: Ids, receive: Ids) -> None:
    size = made.column("size")
    short = np.flatnonzero(size[receive] < size[send])
    if len(short):
        at = int(short[0])
        made.refuse(
            int(receive[at]),
            f"receives {size[receive[at]]} bytes of the {size[send[at]]} that {made.where(int(send[at]))} sends",
        )


def _collectives(made: Operations) -> tuple[Ids, list[Ids]]:
    kind, rank, group = (made.column(name) for name in ("kind", "rank", "group"))
    instance = np.full(len(kind), NONE)
    members: list[Ids] = []
    for number, ranks in enumerate(made.groups):
        rows = np.flatnonzero((kind == OperationKind.COLLECTIVE) & (group == number))
        own = [rows[rank[rows] == each] for each in ranks]
        _refuse_uneven(made, ranks, own)
        for together in np.stack(own, axis=1):
            _refuse_unlike(made, together)
            instance[together] = len(members)
            members.append(together)
    return instance, members


def _refuse_uneven(made: Operations, ranks: tuple[int, ...], own: list[Ids]) -> None:
    """Refuse a collective in which a rank is missing."""
    counts = [len(rows) for rows in own]
    fewest = min(counts)
    if fewest < max(counts):
        some = own[counts.index(max(counts))]
        rank = ranks[counts.index(fewest)]
        made.refuse(
            int(some[fewest]),
            f"rank {rank} is missing: it has {fewest} collectives of this group, "
            f"rank {made.rank[int(some[0])]} has {max(counts)}",
        )


def _refuse_unlike(made: Operations, together: Ids) -> None:
    first = int(together[0])
    for row in map(int, together):
        for name in ("collective", "size"):
            ours, theirs = getattr(made, name)[row], getattr(made, name)[first]
            if ours != theirs:
                words = [
                    Collective(each).name.lower() if name == "collective" else str(each) for each in (ours, theirs)
                ]
                made.refuse(row, f"{name} {words[0]}, but {words[1]} at {made.where(first)}")
