"""What one host may make a controller believe: bounded, as a host can lie.

A row of counts rests on the word of its ends: of a probe those that send and receive it, of a vote its sender. Two
rules hold for every verdict that rests on the words of many hosts.

* No host counts for more than `MOST_WEIGHT` times what the median host counts for: claims of a billion packets that
  arrived, or did not, are scaled down together, so rates stay as they are.
* A part is named only if it would be suspected, with odds of `ALONE_NATS`, without the word of any single host. The
  host at whose own cable the fault is needs no other: it can only take that cable from itself.

A host whose word alone has spoken against a part for `DOUBT_S` is doubted, and its rows count nothing for a while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model.shape import Ints
from openmrc.probing.elements import PartKind
from openmrc.probing.localise import Floats, Localiser, Named

MOST_WEIGHT = 4.0
ALONE_NATS = 7.0  # odds of 1 to 1,000, as for repairs
DOUBT_S = 3.0  # longer than reports of two hosts are apart
DOUBTED_S = 60.0


@dataclass
class RowEnds:
    """The hosts (NICs) on whose word each row rests; both are the same where there is one."""

    sender: Ints
    receiver: Ints

    def extend(self, hosts: npt.ArrayLike) -> None:
        """Add rows of votes."""
        more = np.asarray(hosts, dtype=np.int64)
        self.sender, self.receiver = np.append(self.sender, more), np.append(self.receiver, more)

    def of_hosts(self, hosts: list[int]) -> npt.NDArray[np.bool_]:
        """Return which rows rest on the word of one of these."""
        named = np.array(hosts, dtype=np.int64)
        return np.asarray(np.isin(self.sender, named) | np.isin(self.receiver, named), dtype=bool)

    def limited(self, sent: Floats, lost: Ints) -> tuple[Floats, Ints]:
        """Return the counts with no host above its weight."""
        total = np.bincount(self.sender, sent, minlength=int(self.sender.max(initial=0)) + 1)
        speaking = total[total > 0]
        if not len(speaking):
            return sent, lost
        share = np.minimum(1.0, MOST_WEIGHT * np.median(speaking) / np.maximum(total, 1e-9))[self.sender]
        few = np.ceil(lost * share).astype(np.int64)
        return np.maximum(sent * share, few), few

    def alone(self, localiser: Localiser, named: Named, sent: Floats, lost: Ints) -> int | None:
        """Return the host without whose word a part would not be suspected; None if there are others."""
        rows, nats = _evidence(localiser, named, sent, lost)
        sender, receiver = self.sender[rows], self.receiver[rows]
        count = int(max(self.sender.max(), self.receiver.max())) + 1
        by_host = np.bincount(sender, nats, minlength=count)
        other = receiver != sender
        by_host += np.bincount(receiver[other], nats[other], minlength=count)
        by_host[_owners(localiser, named.part)] = 0.0
        worst = int(by_host.argmax())
        return worst if float(nats.sum()) - float(by_host[worst]) < ALONE_NATS else None


def _evidence(localiser: Localiser, named: Named, sent: Floats, lost: Ints) -> tuple[Ints, Floats]:
    """Return the rows over a part, and how much more likely the fault made their losses than chance, in nats."""
    rows, times = localiser.crossings_of(named.part)
    one, chance = math.log1p(-named.rate), localiser.chance[rows]
    hit = np.log((1 - np.exp(one * times) * (1 - chance)) / chance) * lost[rows]
    return rows, np.asarray(hit + (sent[rows] - lost[rows]) * times * one, dtype=np.float64)


def _owners(localiser: Localiser, part: int) -> list[int]:
    """Return the NIC whose own cable a part is, in a list that may be empty."""
    parts, topology = localiser.parts, localiser.parts.topology
    if parts.kind(part) == PartKind.SWITCH:
        return []
    link = int(parts.links_of(part)[0])
    ends = (int(topology.link_source[link]), int(topology.link_destination[link]))
    return [end for end in ends if end < topology.nics]
