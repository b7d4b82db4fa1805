"""The steps of `mrc demo`: the same outages for one path of TCP, and for MRC over all planes.

First the kernel's TCP sends over one plane, with that plane's outages: it needs nothing compiled, so the engine is
compiled meanwhile where it is not yet. Then MRC writes from memory to memory between two processes over all planes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from openmrc.base.amounts import gbps
from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo.memory_transfer import MemorySender
from openmrc.programs.demo.single_path import SinglePath, SinglePathSample, transfer
from openmrc.programs.demo.timeline import SAMPLE_SECONDS, RateSample, Sampler, returned_after
from openmrc.programs.endpoint.opening import EndpointOptions, connection_options, open_endpoint
from openmrc.programs.endpoint.second_process import SecondProcess
from openmrc.programs.endpoint.shares import PlaneShare, ev_counts
from openmrc.units import PS_PER_S
from openmrc.verbs import Connection, Context

SECONDS = 8.0  # of each transfer
RECEIVER = "openmrc.programs.demo.memory_transfer"
SEED = 1
TIMEOUT = 30.0  # s without progress until failure, unless said
RETURN_SECONDS = 5.0  # s until planes must be in use again after the last byte
UNUSED = ("ASSUMED_BAD", "SILENT")  # labels of EVs that carry no data


class Outage(msgspec.Struct, kw_only=True):
    """One plane's outage: the schedule, and the measured return."""

    plane: int
    down: float  # s after the first byte
    up: float | None
    returned_ms: float | None = None  # s from `up` until the plane carried data again, to the next sample of 100 ms


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


@dataclass(frozen=True)
class DemoOptions:
    """Options of the demo."""

    out: Path
    seconds: float = SECONDS  # of each transfer
    size: int | None = None  # bytes to send by MRC; None: as many as fit into the seconds
    planes: int = 4
    faults: str | None = None  # a schedule as text; None: the default schedule
    seed: int = SEED
    tcp: bool = True  # begin with TCP over one plane
    timeout: float = TIMEOUT  # s without progress until failure


@dataclass
class Audience:
    """Receives reports on the progress of the demo."""

    on_line: Callable[[str], None]
    on_begin: Callable[[Story], None]
    on_sample: Callable[[RateSample], None]
    on_tcp: Callable[[SinglePathSample], None]


class Story:
    """One run of the demo."""

    def __init__(self, options: DemoOptions, audience: Audience) -> None:
        self.options = options
        self.audience = audience
        self.faults = options.faults or story_faults(options.seconds, options.planes)
        self.schedule = Schedule.parse(self.faults, "--impair")
        self.outages = outages_of(self.schedule, options.planes)
        self.sampler: Sampler | None = None
        self.result = DemoResult(ok=False, seed=options.seed, faults=self.faults, outages=self.outages)

    @property
    def samples(self) -> list[RateSample]:
        """Samples so far."""
        return self.sampler.samples if self.sampler is not None else []

    def run_single_path(self, beside_compilation: bool) -> None:
        """Send by TCP over the plane that goes down first, with its outages; nothing if no plane goes down."""
        if not self.outages or not self.options.tcp:
            return
        plane = self.outages[0].plane
        found = SinglePath(plane=plane, beside_compilation=beside_compilation)
        self.result.single_path = found
        sides = (loopback_planes(plane + 1, side)[plane] for side in (EndpointSide.CLIENT, EndpointSide.SERVER))
        outages = [(each.down, each.up) for each in self.outages if each.plane == plane]
        meanwhile = "; the engine is compiled meanwhile" if beside_compilation else ""
        self.audience.on_line(f"a single path: TCP over plane {plane}, for {self.options.seconds:g} s{meanwhile}")
        for down, up in outages:
            self.audience.on_line(f"  plane {plane} goes down at {down:g} s" + (f", up at {up:g} s" if up else ""))
        client, server = sides
        transfer(found, (client, server), outages, self.options.seconds, self.audience.on_tcp)

    def run(self) -> DemoResult:
        """Send over all planes by MRC; the result says whether the memories are equal. MrcError if the run fails."""
        self.options.out.mkdir(parents=True, exist_ok=True)
        endpoint = EndpointOptions(tuple(loopback_planes(self.options.planes, EndpointSide.CLIENT)))
        with open_endpoint(endpoint) as context, self._receiver() as receiver:
            self.audience.on_line(context.describe())
            self._move(context, receiver)
        return self.result

    def _move(self, context: Context, receiver: SecondProcess) -> None:
        asked = self.options
        options = replace(connection_options(context, 0), user_timeout=asked.timeout)
        sender = MemorySender(context, asked.seed, asked.seconds, self.schedule, options, asked.size, asked.timeout)
        self.sampler = Sampler(context, lambda: sender.done, self.audience.on_sample)
        self.audience.on_begin(self)
        error: MrcError | None = None
        try:
            sender.run(receiver.port, receiver.token, self.sampler.begin, self._await_planes)
        except MrcError as caught:
            error = caught
        finally:
            self.sampler.end()
        self._judge(sender, error)

    def _await_planes(self, connection: Connection) -> None:
        """Wait, for a few seconds at most, until every plane that came back up is in use."""
        deadline = time.monotonic() + RETURN_SECONDS
        while time.monotonic() < deadline and unused_planes(ev_counts([connection.qp]), self.outages):
            time.sleep(SAMPLE_SECONDS)

    def _judge(self, sender: MemorySender, error: MrcError | None) -> None:
        result = self.result
        result.error = str(error) if error is not None else None
        result.bytes, result.seconds, result.gbps = sender.done, round(sender.took, 3), gbps(sender.done, sender.took)
        result.planes, result.samples = sender.planes, self.samples
        result.retransmitted_packets = sum(plane.retransmitted for plane in sender.planes)
        for outage in self.outages:
            if outage.up is not None:
                after = returned_after(self.samples, outage.plane, outage.up)
                outage.returned_ms = round(after * 1e3, 1) if after is not None else None
        if sender.verdict is not None:
            found = sender.verdict
            result.sha256, result.longest_stall_ms = found.sha256, round(found.longest_stall_ms, 3)
            result.error = difference(found.wrong, found.sha256, sender.expected)
            result.ok = result.error is None
        if result.ok:
            self._check_planes([each.evs for each in sender.planes])

    def _check_planes(self, evs: Sequence[dict[str, int]]) -> None:
        """Fail the demo if a plane that came back up is not in use at the end."""
        unused = unused_planes(evs, self.outages)
        if unused:
            named = "; ".join(f"plane {plane}: {_in_words(evs[plane])}" for plane in unused)
            self.result.ok = False
            self.result.error = f"the memories are equal, but not all planes are back in use: {named}"

    def _receiver(self) -> SecondProcess:
        return SecondProcess([str(self.options.planes), self.faults], RECEIVER)


def difference(wrong: int, found: str, expected: str) -> str | None:
    """Return how the receiver's memory differs from what was sent; None if it does not."""
    if wrong:
        return f"{wrong} pieces arrived with another CRC-32"
    return None if found == expected else f"the receiver's memory has SHA-256 {found}, expected {expected}"


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
        if "down" not in step.change:
            continue
        at = step.at / PS_PER_S
        for plane in step.planes(planes):
            last = next((each for each in reversed(found) if each.plane == plane and each.up is None), None)
            if step.change["down"] and last is None:
                found.append(Outage(plane=plane, down=at, up=None))
            elif not step.change["down"] and last is not None:
                last.up = at
    return found


def unused_planes(evs: Sequence[dict[str, int]], outages: Sequence[Outage]) -> list[int]:
    """Return the planes that came back up and still have EVs that carry no data; `evs` are counts by state."""
    last = {each.plane: each for each in sorted(outages, key=lambda outage: outage.down)}
    return [plane for plane, each in sorted(last.items()) if each.up is not None and set(UNUSED) & set(evs[plane])]


def _in_words(states: dict[str, int]) -> str:
    return " and ".join(f"{states[name]} EVs {name}" for name in UNUSED if name in states)
