"""Properties of how much a requester has in flight: what marks with delay do to its window.

A window cannot be seen, but what is in flight can, and a requester that has enough to send fills its window. A round
trip ends when the packet that was the newest at its beginning is reported; the most that was in flight during it is the
window, as far as the sender used it. One round trip says little: a host that stands still for some milliseconds lets
reports come together, and congestion control may follow what came. So the typical round trip of the end is compared
with the largest of the beginning.

This holds while the premises do, each of which is looked at: everything marked, the marks reported, all of it late by
more than any target, and nearly nothing sent again: a packet that its sender takes for lost is no longer in flight for
it. A window that did not become much smaller says nothing either if packets were too late, because a tester could not
keep up: a delay beyond half the range of timestamps, 4.2 ms, cannot be told from a small one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, median_high

from openmrc.conform.matching import reported
from openmrc.conform.trail import NothingToJudgeError, PropertyProblem, Trail, TrailPacket, some
from openmrc.wire.codes import CONGESTED, Opcode

LATE = 3_000_000  # ns: targets are some microseconds in a fabric, 2 ms between processes
TOO_LATE = 1 << 15 << 7  # ns: half the range of `tx_timestamp`, 16 bits of 128 ns
CLEARLY = 0.5  # of what was in flight at first: no host that stands still makes most round trips so small
NEARLY_ALL = 0.9
SENT_AGAIN = 0.05  # of the writes
FEWEST_IN_FLIGHT = 8  # packets: of fewer no smaller number can be told
FEWEST_ROUNDS = 6  # in all: a window that halves needs some to become small


@dataclass
class RoundTrip:
    """From the first packet after a round trip until the packets sent up to its beginning are reported."""

    newest: int  # PSN
    peak: int = 0  # packets in flight, most


@dataclass
class InFlight:
    """What is in flight as packets and reports pass, and how long each report took."""

    rounds: list[RoundTrip] = field(default_factory=list)
    took: list[int] = field(default_factory=list)  # ns, from first transmission to report
    telling: list[TrailPacket] = field(default_factory=list)  # SACKs that report something new
    _sent: dict[int, int] = field(default_factory=dict)  # PSN -> when (ns)
    _seen: set[int] = field(default_factory=set)  # PSNs

    def on_write(self, each: TrailPacket) -> None:
        """Count a packet that is sent for the first time."""
        if each.psn in self._seen:
            return
        self._seen.add(each.psn)
        self._sent[each.psn] = each.at
        if not self.rounds or self.rounds[-1].newest not in self._sent:
            self.rounds.append(RoundTrip(each.psn))
        self.rounds[-1].peak = max(self.rounds[-1].peak, len(self._sent))

    def on_report(self, each: TrailPacket, cack: int) -> None:
        """Take out what a SACK reports."""
        beyond = {cack + offset for offset in reported(each.message)}
        new = [psn for psn in self._sent if psn <= cack or psn in beyond]
        self.took += [each.at - self._sent.pop(psn) for psn in new]
        if new:
            self.telling.append(each)


def in_flight(trail: Trail) -> InFlight:
    found = InFlight()
    for each in trail.read():
        if each.message.opcode <= Opcode.WRITE_ONLY_IMM:
            found.on_write(each)
        elif each.message.opcode == Opcode.SACK:
            found.on_report(each, trail.relative(each.message.seth.cack_psn))
    return found


def window_shrinks(trail: Trail) -> Iterator[PropertyProblem]:
    """Marks with delay are answered by less: a typical round trip of the end has fewer in flight than the first ones.

    Judged where everything is marked and late, and nearly nothing is sent again.
    """
    writes = some(trail.writes(judged=True), "write")
    found = in_flight(trail)
    _check_marks(writes, found)
    shortest = min(found.took)
    if shortest < LATE:
        raise NothingToJudgeError(f"a packet was reported after {shortest / 1e6:.1f} ms already")
    again = sum(each.message.bth.rtx for each in writes)
    if again > SENT_AGAIN * len(writes):
        raise NothingToJudgeError(f"{again} of {len(writes)} packets were sent again: what is in flight is not known")
    third = max(each.psn for each in writes) // 3
    first = max(each.peak for each in found.rounds if each.newest <= third)
    # Without the last round trip, for which nothing may have been left to send.
    ending = [each.peak for each, following in pairwise(found.rounds) if following.newest > 2 * third]
    if first < FEWEST_IN_FLIGHT or not ending or len(found.rounds) < FEWEST_ROUNDS:
        raise NothingToJudgeError(
            f"at most {first} packets were in flight at first, in {len(found.rounds)} round trips"
        )
    last = median_high(ending)
    typical = median(found.took)
    if last > CLEARLY * first and typical > TOO_LATE:
        raise NothingToJudgeError(f"packets were reported after {typical / 1e6:.1f} ms: too late for their timestamps")
    if last >= first:
        yield PropertyProblem(0, f"{first} packets were in flight at first, {last} in a round trip towards the end")


def _check_marks(writes: list[TrailPacket], found: InFlight) -> None:
    marked = sum(each.datagram.ecn == CONGESTED for each in writes)
    if marked < NEARLY_ALL * len(writes):
        raise NothingToJudgeError(f"{marked} of {len(writes)} packets were marked")
    told = sum(each.message.seth.m for each in some(found.telling, "SACK that reports something"))
    if told < NEARLY_ALL * len(found.telling):
        raise NothingToJudgeError(f"{told} of {len(found.telling)} SACKs reported a mark")
