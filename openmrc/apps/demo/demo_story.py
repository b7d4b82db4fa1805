"""The steps of `mrc demo`: transfer a file between two processes while planes go down and come back.

A short sample measures the speed of this machine; file size and fault times are chosen so that the demo takes about
ten seconds anywhere.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from openmrc.apps.endpoint import EndpointOptions, connection_options, open_endpoint
from openmrc.apps.planes import EndpointSide, loopback_planes
from openmrc.apps.second_process import SecondProcess
from openmrc.apps.shares import PlaneShare, ev_counts
from openmrc.apps.sizes import size_text
from openmrc.apps.timeline import SAMPLE_SECONDS, RateSample, Sampler, returned_after
from openmrc.apps.transfer.sending import FileSender, sources
from openmrc.apps.transfer.transfer import TransferOptions, TransferResult
from openmrc.errors import MrcError
from openmrc.faults import Schedule
from openmrc.units import PS_PER_S
from openmrc.verbs import Connection, Context

SAMPLE_BYTES = 64 << 20
GOAL_SECONDS = 8.0
LEAST, MOST, STEP = 128 << 20, 2 << 30, 64 << 20  # bytes of the file
LEAST_SIZE = 1 << 20  # bytes, largest size of the file
PIECE = 4 << 20  # bytes generated at a time
SEED = 1
TIMEOUT = 30.0  # s without progress until failure
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
    bytes: int = 0
    sha256: str = ""
    seconds: float = 0.0
    gbps: float = 0.0
    longest_stall_ms: float = 0.0
    retransmitted_packets: int = 0
    seed: int = SEED
    faults: str = ""
    outages: list[Outage] = msgspec.field(default_factory=list)
    planes: list[PlaneShare] = msgspec.field(default_factory=list)
    samples: list[RateSample] = msgspec.field(default_factory=list)
    page: str = ""  # path of the HTML page
    simulation: Simulated | None = None


@dataclass(frozen=True)
class DemoOptions:
    """Options of the demo."""

    out: Path
    size: int | None = None  # bytes; None: about 8 s of transfer
    planes: int = 4
    faults: str | None = None  # a schedule as text; None: the default schedule
    seed: int = SEED
    keep: bool = False  # keep the file and its copy in `out`


@dataclass
class Audience:
    """Receives reports on the progress of the demo."""

    on_line: Callable[[str], None]
    on_file: Callable[[int, int], None]  # bytes generated, of the total
    on_begin: Callable[[Story], None]
    on_sample: Callable[[RateSample], None]


class Story:
    """One run of the demo."""

    def __init__(self, options: DemoOptions, audience: Audience) -> None:
        self.options = options
        self.audience = audience
        self.size = 0
        self.faults = ""
        self.outages: list[Outage] = []
        self.sampler: Sampler | None = None
        self.result = DemoResult(ok=False, seed=options.seed)

    @property
    def samples(self) -> list[RateSample]:
        """Samples so far."""
        return self.sampler.samples if self.sampler is not None else []

    def run(self) -> DemoResult:
        """Run the demo; the result says whether the copy is identical. Raise MrcError if the run fails."""
        folder = self.options.out / "received"
        folder.mkdir(parents=True, exist_ok=True)
        endpoint = EndpointOptions(tuple(loopback_planes(self.options.planes, EndpointSide.CLIENT)), movable=True)
        try:
            with open_endpoint(endpoint) as context:
                self.audience.on_line(context.describe())
                self._plan(self._sample(context, folder))
                self._move(context, folder)
        finally:
            if not self.options.keep:
                self._tidy(folder)
        return self.result

    def _sample(self, context: Context, folder: Path) -> float:
        """Return the rate in bytes per second of a small transfer without faults."""
        self.audience.on_line(f"starting the receiving process; sending a sample of {size_text(SAMPLE_BYTES)} ...")
        path = self.options.out / "sample.bin"
        make_file(path, SAMPLE_BYTES, self.options.seed)
        with self._receiver(folder, None) as receiver:
            sender = FileSender(context, sources([path]), self._transfer(context, receiver, None))
            sender.run("127.0.0.1")
        rate = SAMPLE_BYTES / max(sender.result(None).seconds, 1e-3)
        self.audience.on_line(f"sample: {rate * 8e-9:.2f} Gb/s")
        return rate

    def _plan(self, rate: float) -> None:
        wanted = int(rate * GOAL_SECONDS) // STEP * STEP
        self.size = self.options.size if self.options.size is not None else min(max(wanted, LEAST), MOST)
        self.faults = self.options.faults or story_faults(self.size / rate, self.options.planes)
        self.outages = outages_of(Schedule.parse(self.faults, "--impair"), self.options.planes)

    def _move(self, context: Context, folder: Path) -> None:
        path = self.options.out / "data.bin"
        digest = make_file(path, self.size, self.options.seed, self.audience.on_file)
        with self._receiver(folder, self.faults) as receiver:
            schedule = Schedule.parse(self.faults, "--impair")
            sender = FileSender(context, sources([path]), self._transfer(context, receiver, schedule))
            self.sampler = Sampler(context, lambda: sender.progress.done, self.audience.on_sample)
            self.audience.on_begin(self)
            error: MrcError | None = None
            try:
                sender.run("127.0.0.1", self.sampler.begin, self._await_planes)
            except MrcError as caught:
                error = caught
            finally:
                self.sampler.end()
            self._judge(sender.result(str(error) if error else None), folder / path.name, digest)

    def _await_planes(self, connection: Connection) -> None:
        """Wait, for a few seconds at most, until every plane that came back up is in use."""
        deadline = time.monotonic() + RETURN_SECONDS
        while time.monotonic() < deadline and unused_planes(ev_counts([connection.qp]), self.outages):
            time.sleep(SAMPLE_SECONDS)

    def _judge(self, moved: TransferResult, copy: Path, digest: str) -> None:
        result = self.result
        result.error = moved.error
        result.seconds, result.gbps, result.planes = moved.seconds, moved.gbps, moved.planes
        result.longest_stall_ms, result.retransmitted_packets = moved.longest_stall_ms, moved.retransmitted_packets
        result.faults, result.outages, result.samples = self.faults, self.outages, self.samples
        for outage in self.outages:
            if outage.up is not None:
                after = returned_after(self.samples, outage.plane, outage.up)
                outage.returned_ms = round(after * 1e3, 1) if after is not None else None
        if moved.error is None:
            self.audience.on_line("reading the copy back from disk ...")
            result.bytes, result.sha256 = copy.stat().st_size, file_digest(copy)
            result.ok = result.sha256 == digest and result.bytes == self.size
            result.error = None if result.ok else f"the copy has SHA-256 {result.sha256}, the file {digest}"
        if result.ok:
            self._check_planes([each.evs for each in moved.planes])

    def _check_planes(self, evs: Sequence[dict[str, int]]) -> None:
        """Fail the demo if a plane that came back up is not in use at the end."""
        unused = unused_planes(evs, self.outages)
        if unused:
            named = "; ".join(f"plane {plane}: {_in_words(evs[plane])}" for plane in unused)
            self.result.ok = False
            self.result.error = f"the copy is identical, but not all planes are back in use: {named}"

    def _receiver(self, folder: Path, faults: str | None) -> SecondProcess:
        arguments = ["recv", "--out", str(folder), "--once", "--force", "--quiet", "--json", "--port", "0"]
        arguments += ["--bind", "127.0.0.1", "--planes", str(self.options.planes), "--wait", "60"]
        return SecondProcess([*arguments, *(["--impair", faults] if faults else [])])

    def _transfer(self, context: Context, receiver: SecondProcess, faults: Schedule | None) -> TransferOptions:
        asked = connection_options(context, 0, TIMEOUT)
        return TransferOptions(receiver.port, TIMEOUT, token=receiver.token, faults=faults, connection=asked)

    def _tidy(self, folder: Path) -> None:
        for name in ("sample.bin", "data.bin"):
            (self.options.out / name).unlink(missing_ok=True)
            (folder / name).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def story_faults(seconds: float, planes: int) -> str:
    """Return the default schedule for a transfer of about this many seconds."""
    at = [round(seconds * share, 1) for share in (0.15, 0.35, 0.45, 0.65)]  # it may be faster than its sample
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


def make_file(path: Path, size: int, seed: int, on_piece: Callable[[int, int], None] | None = None) -> str:
    """Write pseudo-random bytes, the same for the same seed; return their SHA-256."""
    import numpy as np

    random, digest, made = np.random.default_rng(seed), hashlib.sha256(), 0
    try:
        with path.open("wb") as file:
            while made < size:
                piece = random.bytes(min(PIECE, size - made))
                digest.update(piece)
                file.write(piece)
                made += len(piece)
                if on_piece is not None:
                    on_piece(made, size)
    except OSError as error:
        raise MrcError(f"{path}: {error.strerror}") from None
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
