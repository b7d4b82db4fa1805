"""Which hosts are late, and what one host may make a controller believe: bounded, as a host can lie.

A row of counts rests on the word of its ends: of a probe those that send and receive it, of a vote its sender. Two
rules hold for every verdict that rests on the words of many hosts.

* No host counts for more than `MOST_WEIGHT` times what the median host counts for: claims of a billion packets that
  arrived, or did not, are scaled down together, so rates stay as they are.
* A part is named only if it would be suspected, with odds of `ALONE_NATS`, without the word of any single host. The
  host at whose own cable the fault is needs no other: it can only take that cable from itself.

A host that speaks alone against a part while packets of others cross it unharmed, again and again for `DOUBT_S`, is
doubted: its rows count nothing for a while. Where no other host sends, none can contradict it, and it is not doubted.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.elements import PartKind
from openmrc.operations.diagnosis.localise import Counts, Floats, Localiser, Named

MOST_WEIGHT = 4.0
ALONE_NATS = 7.0  # odds of 1 to 1,000, as for repairs
DOUBT_S = 3.0  # longer than reports of two hosts are apart
SPOKEN_S = 0.5  # windows up to this show that a host goes on speaking; longer ones keep what it has said once
PAUSE_S = 1.0  # after which it has to begin anew
DOUBTED_S = 60.0


@dataclass(frozen=True)
class LoneWord:
    """A host on whose word alone a part would be named."""

    host: int
    contradicted: bool  # packets of others cross the part that a fault would have lost, with odds of `ALONE_NATS`


class Suspicions:
    """The hosts that alone report losses at a part, since when, and which of them are doubted."""

    def __init__(self) -> None:
        self._alone: dict[tuple[int, int], tuple[float, float]] = {}  # (host, part): first and last time
        self._doubted: dict[int, float] = {}  # until when

    def doubted(self, now: float) -> list[int]:
        """Return the hosts whose votes are ignored now."""
        self._doubted = {host: until for host, until in self._doubted.items() if until > now}
        return list(self._doubted)

    def alone(self, word: LoneWord, part: int, now: float) -> None:
        """Record an uncorroborated report from a window of at most `SPOKEN_S`."""
        self._alone = {key: times for key, times in self._alone.items() if now - times[1] <= PAUSE_S}
        since = self._alone.get((word.host, part), (now, now))[0]
        self._alone[word.host, part] = since, now
        if now - since >= DOUBT_S and word.contradicted:
            self._doubted[word.host] = now + DOUBTED_S

    def lone_words(self, now: float) -> list[tuple[int, int]]:
        """Return (host, part) of uncorroborated reports."""
        return [key for key, times in self._alone.items() if now - times[1] <= PAUSE_S]

    def waits(self, now: float) -> bool:
        """Whether an uncorroborated report is recent: others may be about to confirm it."""
        return any(last == now and now - since < DOUBT_S for since, last in self._alone.values())

    def confirmed(self, part: int) -> None:
        """Drop suspicions about a part that others confirmed."""
        self._alone = {key: times for key, times in self._alone.items() if key[1] != part}


@dataclass
class RowEnds:
    """The hosts (NICs) on whose word each row rests; both are the same where there is one."""

    sender: Ints
    receiver: Ints

    def extend(self, hosts: npt.ArrayLike) -> None:
        more = np.asarray(hosts, dtype=np.int64)
        self.sender, self.receiver = np.append(self.sender, more), np.append(self.receiver, more)

    def limited(self, sent: Floats, lost: Counts, ignored: list[int]) -> tuple[Floats, Counts]:
        """Return the counts with no host above its weight, and none of those that are ignored."""
        gone = np.isin(self.sender, ignored) | np.isin(self.receiver, ignored)
        sent, lost = np.where(gone, 0.0, sent), np.where(gone, 0.0, lost)
        total = np.bincount(self.sender, sent, minlength=int(self.sender.max(initial=0)) + 1)
        speaking = total[total > 0]
        if not len(speaking):
            return sent, lost
        share = np.minimum(1.0, MOST_WEIGHT * np.median(speaking) / np.maximum(total, 1e-9))[self.sender]
        return sent * share, lost * share

    def alone(self, localiser: Localiser, named: Named, sent: Floats, lost: Counts) -> LoneWord | None:
        """Return the host without whose reports a part would not be suspected; None if others suspect it too."""
        rows, nats = _evidence(localiser, named, sent, lost)
        sender, receiver = self.sender[rows], self.receiver[rows]
        count = int(max(self.sender.max(), self.receiver.max())) + 1
        by_host = np.bincount(sender, nats, minlength=count)
        other = receiver != sender
        by_host += np.bincount(receiver[other], nats[other], minlength=count)
        by_host[_owners(localiser, named.part)] = 0.0
        worst = int(by_host.argmax())
        others = float(nats.sum()) - float(by_host[worst])
        return LoneWord(worst, others < -ALONE_NATS) if others < ALONE_NATS else None


def _evidence(localiser: Localiser, named: Named, sent: Floats, lost: Counts) -> tuple[Ints, Floats]:
    """Return the rows over a part, and how much more likely the fault made their losses than chance, in nats."""
    rows, times = localiser.by_part.of(named.part)
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


CALM_S = 5.0  # without lateness: then it is over


@dataclass
class _Lateness:
    began: float
    last: float


class LateHosts:
    """The hosts (NICs) that were late within the last `CALM_S`; times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._late: dict[int, _Lateness] = {}

    def look(self, now: float, late: Collection[int]) -> tuple[list[int], list[tuple[int, float]]]:
        """Update the late hosts; return those that became late, and how long (s) those were that no longer are."""
        new = [nic for nic in late if nic not in self._late]
        for nic in late:
            self._late.setdefault(nic, _Lateness(now, now)).last = now
        over = [(nic, each.last - each.began) for nic, each in self._late.items() if now - each.last >= CALM_S]
        for nic, _ in over:
            del self._late[nic]
        return new, over
