"""The object that `mrc demo --json` prints, what is read from it (outages, return of planes, table), and its page."""

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from openmrc.base.amounts import size_text
from openmrc.base.faults import Schedule
from openmrc.programs.endpoint.shares import PlaneShare
from openmrc.report.page import page as html_page
from openmrc.report.page import rows
from openmrc.report.strips import Strip
from openmrc.report.strips import drawing as strips_drawing
from openmrc.report.svg import ShadedTime
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

    def measure_returns(self) -> None:
        """Note when each plane that came up again carried data, by the samples."""
        for outage in self.outages:
            if outage.up is not None:
                after = returned_after(self.samples, outage.plane, outage.up)
                outage.returned_ms = round(after * 1e3, 1) if after is not None else None

    def check_planes(self) -> None:
        """Fail the demo if a plane that came back up is not in use at the end."""
        evs = [each.evs for each in self.planes]
        if unused := unused_planes(evs, self.outages):
            self.ok = False
            named = "; ".join(f"plane {plane}: {_in_words(evs[plane])}" for plane in unused)
            self.error = f"the memories are equal, but not all planes are back in use: {named}"


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


ROBUST_SHARE = 0.98  # share of the samples below the top of a strip: one short sample must not flatten the others
HEADROOM = 1.1
SAMPLE = 0.15  # s; a sample that was under way when the plane came up does not count
NOTED_SECONDS = 0.8  # a shorter wait has no room for its note
_MRC, _TCP, _FIRST = 2, 1, 0  # colours


def robust_most(rates: Sequence[float]) -> float:
    """Return an upper end of the scale that exceeds nearly all rates."""
    ordered = sorted(rates)
    most = ordered[min(int(len(ordered) * ROBUST_SHARE), len(ordered) - 1)] if ordered else 0.0
    return most * HEADROOM or 1.0


def drawing(result: DemoResult) -> str:
    """Return an SVG: MRC and TCP with the same outages, then one strip per plane."""
    strips = list(_strips(result))
    length = max([each.x[-1] for each in strips if each.x] or [1.0])
    if result.single_path is not None:
        title = f"The same outages for MRC over {len(strips) - 2} planes and for TCP over one"
    else:
        title = f"MRC over {len(strips) - 1} planes: rate of each during faults"
    return strips_drawing(title, "seconds since the first byte", strips, length)


def _strips(result: DemoResult) -> Iterator[Strip]:
    """Yield the curves: MRC in all, TCP over one plane, and each plane of MRC."""
    times = [sample.at for sample in result.samples]
    count = len(result.samples[0].planes) if result.samples else 0
    received = [sample.gbps for sample in result.samples]
    single = result.single_path
    tcp = [sample.gbps for sample in single.samples] if single is not None else []
    most = max(robust_most(received), robust_most(tcp)) if tcp else robust_most(received)
    yield Strip(f"MRC, {count} planes", times, received, most, "Gb/s", colour=_MRC, shades=_shades(result.outages))
    if single is not None:
        own = [outage for outage in result.outages if outage.plane == single.plane]
        at = [sample.at for sample in single.samples]
        waits = list(_waits(at, tcp, own))
        name = f"TCP, plane {single.plane}"
        yield Strip(name, at, tcp, most, "Gb/s", colour=_TCP, shades=_shades(own, "down"), remarks=waits)
    by_plane = [[sample.planes[plane] for sample in result.samples] for plane in range(count)]
    most = robust_most([rate for rates in by_plane for rate in rates])
    for plane, rates in enumerate(by_plane):
        shades = _shades([outage for outage in result.outages if outage.plane == plane], "down")
        yield Strip(f"plane {plane}", times, rates, most, "Gb/s", "of MRC", _FIRST + plane, shades=shades)


def _shades(outages: Sequence[Outage], label: str = "") -> list[ShadedTime]:
    return [ShadedTime(each.down, each.up if each.up is not None else float("inf"), label) for each in outages]


def _waits(times: Sequence[float], rates: Sequence[float], outages: Sequence[Outage]) -> Iterator[tuple[float, str]]:
    """Yield a remark where a plane is up again and nothing arrives yet."""
    for outage in outages:
        if outage.up is None:
            continue
        later = [at for at, rate in zip(times, rates, strict=True) if at > outage.up + SAMPLE and rate > 0]
        back = later[0] if later else times[-1]
        if back - outage.up > NOTED_SECONDS:
            yield (outage.up + back) / 2, "plane is up, TCP waits"


def page(result: DemoResult) -> str:
    """Return the whole page."""
    good = f"OK: {result.bytes:,} bytes arrived, the memories are equal"
    verdict = (
        f'<p class="good"><b>{good}</b></p>'
        if result.ok
        else f'<p class="bad"><b>FAILED: {escape(result.error or "")}</b></p>'
    )
    body = [
        f"<h1>Memory over {len(result.planes)} planes while planes go down</h1>{verdict}",
        f"<p>{size_text(result.bytes)} in {result.seconds:.2f} s: {result.gbps:.2f} Gb/s from the memory of one "
        "process into that of another, in pieces of 1 MiB; the receiver compared the CRC-32 of each as it arrived, and "
        f"at the end the SHA-256 of its memory, <code>{result.sha256}</code>. It never waited longer than "
        f"<b>{result.longest_stall_ms:.1f} ms</b> for the next piece. {result.retransmitted_packets:,} packets were "
        "retransmitted.</p>",
        _tcp(result),
        f"<p>Faults: <code>{escape(result.faults)}</code>, applied on arrival at both ends and shaded below.</p>",
        drawing(result),
        rows(COLUMNS, result.plane_rows(), NUMERIC),
        "<dl><dt>lost<dd>Packets sent on this plane and declared lost: no acknowledgement within the loss delay, or a "
        "NACK.<dt>retransmitted<dd>Retransmissions sent on this plane, mostly of packets lost on another.</dl>",
        _simulation(result),
    ]
    return html_page(f"openmrc: memory over {len(result.planes)} planes", body)


def _tcp(result: DemoResult) -> str:
    single = result.single_path
    if single is None:
        return ""
    beside = " The engine was being compiled meanwhile, which slowed it." if single.beside_compilation else ""
    return (
        f"<p>For comparison, the kernel's TCP over plane {single.plane} alone, between two sockets here, with "
        f"the outages of that plane: {single.gbps:.2f} Gb/s, and the receiver got nothing for up to "
        f"<b>{single.longest_stall_ms:,.0f} ms</b>. TCP notices an outage by a retransmission time-out, which doubles "
        f"with each try (RFC 6298), so it may find the plane long after it is back.{beside}</p>"
    )


def _simulation(result: DemoResult) -> str:
    if result.simulation is None:
        return ""
    found = result.simulation
    report = os.path.relpath(found.report, Path(result.page).parent) if result.page else found.report
    return (
        "<h2>The same engine, simulated</h2>"
        f"<p>{found.finished:,} of {found.flows:,} flows of {found.nics} NICs finished; training steps of "
        f"{found.step_p50_us:.1f} us (median) to {found.step_max_us:.1f} us while a cable flaps and a plane is down. "
        f'<a href="{escape(report)}">Report of the simulation</a></p>'
    )
