"""What happened in a demo: samples of both transfers, the outages of the schedule, the verdict. `--json` prints it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf
from typing import Any

import msgspec

from openmrc.base.amounts import gbps
from openmrc.base.faults import Schedule
from openmrc.programs.endpoint.shares import PlaneShare

SAMPLE_SECONDS = 0.1
UNUSED = ("ASSUMED_BAD", "SILENT")  # labels of EVs that carry no data


class Outage(msgspec.Struct, kw_only=True):
    """One plane's outage by the schedule."""

    plane: int
    down: float  # s after the first byte
    up: float | None

    def covers(self, at: float) -> bool:
        """Whether the plane is down at this time by the schedule."""
        return self.down <= at < (self.up or at + 1)


class RateSample(msgspec.Struct, kw_only=True):
    """A tenth of a second of a transfer."""

    at: float  # s since the transfer began, at the end of the sample
    gbps: float  # that the receiver got
    planes: list[float]  # Gb/s of payload sent on each plane, retransmissions included
    evs: list[dict[str, int]]  # per plane, EV state, or SILENT: number of EVs in it; empty for TCP


class TransferResult(msgspec.Struct, kw_only=True):
    """What the receiver got, and when."""

    bytes: int = 0
    seconds: float = 0.0
    gbps: float = 0.0
    longest_stall_ms: float = 0.0  # longest time in which nothing arrived
    samples: list[RateSample] = msgspec.field(default_factory=list)


class SinglePath(TransferResult, kw_only=True):
    """The TCP transfer over one plane."""

    plane: int


class DemoResult(TransferResult, kw_only=True):
    """The object that `mrc demo --json` prints: the transfer by MRC in pieces of 1 MiB, and what is beside it."""

    ok: bool = False
    error: str | None = "interrupted"
    sha256: str = ""  # over the CRC-32s of all pieces as they arrived
    faults: str
    outages: list[Outage]
    planes: list[PlaneShare] = msgspec.field(default_factory=list)
    single_path: SinglePath | None = None  # TCP over the plane that goes down first; none if no plane does
    page: str = ""  # path of the HTML page
    simulation: dict[str, Any] | None = None  # as `mrc sim run demo --json` prints it

    def judge(self, found: str, expected: str) -> None:
        """Say whether what arrived is what was sent, by SHA-256, and each plane that came up is in use."""
        self.sha256, self.error = found, None
        if found != expected:
            self.error = f"what arrived has SHA-256 {found}, expected {expected}"
        elif unused := unused_planes(self.planes, self.outages):
            self.error = f"all has arrived, but planes are not back in use: {', '.join(map(str, unused))}"
        self.ok = self.error is None


@dataclass
class Recorder:
    """Takes the samples of a transfer while it runs, and its totals."""

    transfer: TransferResult
    show: Callable[[RateSample], None]
    planes: Callable[[], Sequence[tuple[int, dict[str, int]]]]  # bytes that each has sent so far, and its EVs by state
    began: float = field(default_factory=time.monotonic)
    _arrived: float = 0.0  # s since then, when something arrived last
    _last: float = 0.0  # s at the last sample
    _done: int = 0  # bytes that had arrived then
    _sent: Sequence[int] = ()  # by each plane, then

    @property
    def at(self) -> float:
        """Seconds since the transfer began."""
        return time.monotonic() - self.began

    def count(self, done: int) -> float:
        """Note how many bytes have arrived; return the seconds for which nothing has."""
        at, transfer = self.at, self.transfer
        pause = at - self._arrived
        transfer.longest_stall_ms = max(transfer.longest_stall_ms, round(pause * 1e3, 1))
        if done > transfer.bytes:
            self._arrived = at
            transfer.bytes, transfer.seconds, transfer.gbps = done, round(at, 3), round(gbps(done, at), 4)
        self.sample()
        return pause

    def sample(self) -> None:
        """Take a sample if it is time."""
        at, done = self.at, self.transfer.bytes
        span = at - self._last
        if span < SAMPLE_SECONDS:
            return
        sent, evs = zip(*self.planes(), strict=True)
        planes = [round(gbps(now - then, span), 4) for now, then in zip_longest(sent, self._sent, fillvalue=0)]
        rate = round(gbps(done - self._done, span), 4)
        self.transfer.samples.append(RateSample(at=round(at, 3), gbps=rate, planes=planes, evs=list(evs)))
        self.show(self.transfer.samples[-1])
        self._last, self._done, self._sent = at, done, sent


def story_faults(seconds: float, planes: int) -> str:
    """Return the default schedule: plane 1 is down in the first half of a transfer, all after it in the second."""
    outages = [(0.15, min(1, planes - 1)), *((0.5, plane) for plane in range(2, planes))]
    lasts = round(seconds * 0.2, 2) if planes > 1 else 0.2  # with one plane nothing can take over
    return "; ".join(
        f"at: {round(seconds * share, 2):g}s, for: {lasts:g}s, down: plane {plane}" for share, plane in outages
    )


def outages_of(schedule: Schedule, planes: int) -> list[Outage]:
    """Return the outages of a schedule, in order of time."""
    found = [
        Outage(plane=plane, down=down, up=up if up < inf else None)
        for plane in range(planes)
        for down, up, _ in schedule.spans(plane, planes, lambda now: "down" if now.down else "")
    ]
    return sorted(found, key=lambda outage: outage.down)


def unused_planes(planes: Sequence[PlaneShare], outages: Sequence[Outage]) -> list[int]:
    """Return the planes that came back up and still have EVs that carry no data."""
    returned = {each.plane for each in outages} - {each.plane for each in outages if each.up is None}
    return [each.plane for each in planes if each.plane in returned and set(UNUSED) & set(each.evs)]
