"""The object that `mrc demo --json` prints, and what is read from it: outages, return of planes, table."""

from collections.abc import Iterator, Sequence

import msgspec

from openmrc.base.faults import Schedule
from openmrc.programs.endpoint.shares import PlaneShare
from openmrc.units import PS_PER_S

SEED = 1
SAMPLE_SECONDS = 0.1
UNUSED = ("ASSUMED_BAD", "SILENT")  # labels of EVs that carry no data
COLUMNS = ("plane", "address", "sent packets", "share", "retransmitted", "lost", "EVs at the end", "back in use")
NUMERIC = (0, 2, 3, 4, 5)  # columns


class Outage(msgspec.Struct, kw_only=True):
    """One plane's outage: the schedule, and the measured return."""

    plane: int
    down: float  # s after the first byte
    up: float | None
    returned_ms: float | None = None  # from `up` until the plane carried data again, to the next sample of 100 ms

    def covers(self, at: float) -> bool:
        """Whether the plane is down at this time by the schedule."""
        return self.down <= at < (self.up or at + 1)


class RateSample(msgspec.Struct, kw_only=True):
    """One sample of about a tenth of a second."""

    at: float  # s since the transfer began, at the end of the sample
    done: int  # bytes that the receiver has consumed so far
    gbps: float  # of these, in this sample
    planes: list[float]  # Gb/s of payload sent on each plane, retransmissions included
    evs: list[dict[str, int]]  # per plane, EV state, or SILENT: number of EVs in it
    retransmitted: int  # packets in this sample


class SinglePathSample(msgspec.Struct, kw_only=True):
    """A tenth of a second of the TCP transfer."""

    at: float  # s since it began, at the end of the sample
    gbps: float


class SinglePath(msgspec.Struct, kw_only=True):
    """The TCP transfer over one plane."""

    plane: int
    bytes: int = 0
    seconds: float = 0.0
    gbps: float = 0.0
    longest_stall_ms: float = 0.0  # longest time in which the receiver got nothing
    beside_compilation: bool = False  # the engine was being compiled meanwhile, which costs it processor time
    samples: list[SinglePathSample] = msgspec.field(default_factory=list)


class Simulated(msgspec.Struct, kw_only=True):
    """Results of the demo scenario of the simulator."""

    nics: int
    flows: int
    finished: int
    packets: int  # without retransmissions
    step_p50_us: float  # of the synchronous steps, in simulated time
    step_max_us: float
    wall_s: float
    report: str  # path of the HTML page


class DemoResult(msgspec.Struct, kw_only=True):
    """The object that `mrc demo --json` prints."""

    ok: bool
    error: str | None = None
    bytes: int = 0  # that arrived, each piece with the right CRC-32
    sha256: str = ""  # of the receiver's memory at the end
    seconds: float = 0.0
    gbps: float = 0.0
    longest_stall_ms: float = 0.0  # longest wait of the receiver for the next piece of 1 MiB
    retransmitted_packets: int = 0
    seed: int = SEED
    faults: str = ""
    outages: list[Outage] = msgspec.field(default_factory=list)
    planes: list[PlaneShare] = msgspec.field(default_factory=list)
    samples: list[RateSample] = msgspec.field(default_factory=list)
    single_path: SinglePath | None = None  # TCP over the plane that goes down first; none if no plane does
    page: str = ""  # path of the HTML page
    simulation: Simulated | None = None

    def plane_rows(self) -> Iterator[list[str]]:
        """Yield a row of `COLUMNS` for each plane."""
        for each in self.planes:
            numbers = [f"{each.sent_packets:,}", f"{each.share:.1%}", f"{each.retransmitted:,}", f"{each.lost:,}"]
            evs = " ".join(f"{count} {state}" for state, count in each.evs.items())
            back = ", ".join(_returned(outage) for outage in self.outages if outage.plane == each.plane)
            yield [str(each.plane), each.address, *numbers, evs, back or "never down"]

    def take_planes(self, planes: list[PlaneShare]) -> None:
        """Note what each plane carried, and by the samples when those that came up again carried data."""
        self.planes, self.retransmitted_packets = planes, sum(plane.retransmitted for plane in planes)
        for outage in self.outages:
            if outage.up is not None:
                after = returned_after(self.samples, outage.plane, outage.up)
                outage.returned_ms = round(after * 1e3, 1) if after is not None else None

    def judge(self, wrong: int, found: str, expected: str) -> None:
        """Say whether the memories are equal, by wrong pieces and SHA-256, and each plane that came up is in use."""
        self.sha256, evs = found, [each.evs for each in self.planes]
        if wrong:
            self.error = f"{wrong} pieces arrived with another CRC-32"
        elif found != expected:
            self.error = f"the receiver's memory has SHA-256 {found}, expected {expected}"
        elif unused := unused_planes(evs, self.outages):
            named = "; ".join(f"plane {plane}: {_in_words(evs[plane])}" for plane in unused)
            self.error = f"the memories are equal, but not all planes are back in use: {named}"
        self.ok = self.error is None


def _returned(outage: Outage) -> str:
    if outage.up is None:
        return "not back"
    return f"after {outage.returned_ms:.0f} ms" if outage.returned_ms is not None else "not before the end"


def _in_words(states: dict[str, int]) -> str:
    return " and ".join(f"{states[name]} EVs {name}" for name in UNUSED if name in states)


def story_faults(seconds: float, planes: int) -> str:
    """Return the default schedule for a transfer of this many seconds."""
    at = [round(seconds * share, 2) for share in (0.15, 0.35, 0.5, 0.7)]
    first, others = min(1, planes - 1), range(2, planes)
    if planes == 1:  # no other plane takes over: show a short outage only
        return f"at: {at[0]}s, down: plane 0; at: {at[0] + 0.2:g}s, up: plane 0"
    steps = [f"at: {at[0]}s, down: plane {first}", f"at: {at[1]}s, up: plane {first}"]
    steps += [f"at: {at[2]}s, down: plane {plane}" for plane in others]
    steps += [f"at: {at[3]}s, up: plane {plane}" for plane in others]
    return "; ".join(steps)


def outages_of(schedule: Schedule, planes: int) -> list[Outage]:
    """Return the outages of a schedule, in order of time."""
    found: list[Outage] = []
    for step in schedule.steps:
        for plane in step.planes(planes) if "down" in step.change else ():
            last = next((each for each in reversed(found) if each.plane == plane and each.up is None), None)
            if step.change["down"] and last is None:
                found.append(Outage(plane=plane, down=step.at / PS_PER_S, up=None))
            elif not step.change["down"] and last is not None:
                last.up = step.at / PS_PER_S
    return found


def unused_planes(evs: Sequence[dict[str, int]], outages: Sequence[Outage]) -> list[int]:
    """Return the planes that came back up and still have EVs that carry no data; `evs` are counts by state."""
    last = {each.plane: each for each in sorted(outages, key=lambda outage: outage.down)}
    return [plane for plane, each in sorted(last.items()) if each.up is not None and set(UNUSED) & set(evs[plane])]


def returned_after(samples: Sequence[RateSample], plane: int, up_at: float) -> float | None:
    """Return the seconds from `up_at` until the plane carried data again, to the next sample; None if it never did."""
    usual = max((sample.planes[plane] for sample in samples), default=0.0)
    for sample in samples:
        if sample.at >= up_at + SAMPLE_SECONDS / 2 and sample.planes[plane] > usual / 20:
            return max(sample.at - up_at, 0.0)
    return None
