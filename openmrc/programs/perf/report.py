"""The report of `mrc perf`: perftest's columns and JSON keys, and our additions under `mrc`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from openmrc.programs.endpoint.shares import PlaneShare
from openmrc.programs.perf.words import Done, PerfPlan, Test
from openmrc.verbs import Context, QpCounters

MIB = 1 << 20


class TestInfo(msgspec.Struct, kw_only=True):
    """perftest's `test_info`, as far as it applies."""

    test: str
    Dual_port: str = "OFF"
    Device: str
    Number_of_qps: int
    Transport_type: str = "MRC"
    Connection_type: str = "RC"
    TX_depth: int
    Mtu: str
    Link_type: str = "UDP"
    GID_index: int = 0
    Max_inline_data: str = "0[B]"
    rdma_cm_qps: str = msgspec.field(default="OFF", name="rdma_cm_QPs")
    Data_ex_method: str = "TCP"


class PerfResult(msgspec.Struct, kw_only=True):
    """perftest's `results` of one size, of a bandwidth or of a latency test."""

    MsgSize: int  # bytes
    n_iterations: int
    BW_peak: float | UnsetType = UNSET  # unit: mrc.bw_unit
    BW_average: float | UnsetType = UNSET
    MsgRate: float | UnsetType = UNSET  # million messages a second
    t_min: float | UnsetType = UNSET  # us, half a round trip, as the following
    t_max: float | UnsetType = UNSET
    t_typical: float | UnsetType = UNSET  # median
    t_avg: float | UnsetType = UNSET
    t_stdev: float | UnsetType = UNSET
    t_99: float | UnsetType = UNSET
    t_99_9: float | UnsetType = UNSET


class Second(msgspec.Struct, kw_only=True):
    """One interval line."""

    size: int  # bytes of a write
    start: float  # s since the run began
    end: float
    gbps: float  # completed writes of this end
    retransmitted: int  # packets
    plane_gbps: list[float]  # payload sent and received on each plane, retransmissions included
    evs: list[dict[str, int]]  # for each plane: EV state: how many


class Direction(msgspec.Struct, kw_only=True):
    """One end's writes of one size."""

    size: int
    sender: str  # client or server
    iterations: int
    bytes: int
    seconds: float
    gbps: float


class Details(msgspec.Struct, kw_only=True):
    """Results without a key in perftest."""

    ok: bool
    role: str  # client or server
    peer: str = ""
    error: str | None = None
    bw_unit: str = "MiB/s"
    planes: list[PlaneShare] = msgspec.field(default_factory=list)
    peer_planes: list[PlaneShare] = msgspec.field(default_factory=list)  # as the server saw it
    ev_format: str = ""
    cc: str = ""
    segmentation: bool = False  # UDP_SEGMENT and UDP_GRO are used
    directions: list[Direction] = msgspec.field(default_factory=list)
    intervals: list[Second] = msgspec.field(default_factory=list)
    retransmitted_packets: int = 0
    timeouts: int = 0
    spurious_retransmissions: int = 0
    srtt_us: float = 0.0
    faults: str | None = None


class PerfReport(msgspec.Struct, kw_only=True):
    """The object that `mrc perf --json` prints. With more than one size `results` is a list."""

    test_info: TestInfo
    results: PerfResult | list[PerfResult]
    mrc: Details


@dataclass
class PerfRun:
    size: int
    ours: Done
    theirs: Done | None = None
    times: dict[str, float] | None = None  # of half a round trip, us: `t_min` and others of a result


@dataclass
class Findings:
    """The results of one end; grows while the test runs."""

    plan: PerfPlan
    details: Details
    mtu: int = 0
    device: str = ""
    runs: list[PerfRun] = field(default_factory=list)
    counters: Sequence[QpCounters] = ()

    def describe(self, context: Context) -> None:
        about = context.query_device()
        self.device, self.details.ev_format = ",".join(about.planes), about.ev_format.name
        self.details.segmentation = about.segmentation

    def count(self, counters: Sequence[QpCounters]) -> None:
        """Note the counters of all queue pairs, and add them up."""
        self.counters = counters
        self.details.retransmitted_packets = sum(each.retransmitted for each in counters)
        self.details.timeouts = sum(each.timeouts for each in counters)
        self.details.spurious_retransmissions = sum(each.spurious for each in counters)
        self.details.srtt_us = max((each.srtt_us for each in counters), default=0.0)


def report(findings: Findings, in_gbits: bool, error: str | None) -> PerfReport:
    """Return the object to print."""
    plan = findings.plan
    info = TestInfo(
        test=plan.test.value,
        Device=findings.device,
        Number_of_qps=plan.queue_pairs,
        TX_depth=plan.depth,
        Mtu=f"{findings.mtu}[B]",
    )
    results = [result_of(run, in_gbits) for run in findings.runs]
    details = msgspec.structs.replace(
        findings.details,
        ok=error is None,
        error=error,
        bw_unit="Gb/s" if in_gbits else "MiB/s",
        directions=[each for run in findings.runs for each in _directions(run, findings.details.role)],
        faults=plan.faults,
    )
    return PerfReport(test_info=info, results=results[0] if len(results) == 1 else results, mrc=details)


def result_of(run: PerfRun, in_gbits: bool) -> PerfResult:
    """Return one size's result; if both ends send, the sum."""
    done = [each for each in (run.ours, run.theirs) if each is not None and each.iterations]
    count = sum(each.iterations for each in done)
    if run.times is not None:
        return PerfResult(MsgSize=run.size, n_iterations=run.ours.iterations, **run.times)
    unit = 1e-9 if in_gbits else 1 / (8 * MIB)
    return PerfResult(
        MsgSize=run.size,
        n_iterations=count,
        BW_peak=round(sum(each.peak_bps for each in done) * unit, 4),
        BW_average=round(sum(each.bytes * 8 / each.seconds for each in done) * unit, 4),
        MsgRate=round(sum(each.iterations / each.seconds for each in done) * 1e-6, 6),
    )


def _directions(run: PerfRun, role: str) -> list[Direction]:
    other = "server" if role == "client" else "client"
    found = [(role, run.ours), *([(other, run.theirs)] if run.theirs is not None else [])]
    return [
        Direction(
            size=run.size,
            sender=sender,
            iterations=done.iterations,
            bytes=done.bytes,
            seconds=round(done.seconds, 6),
            gbps=round(done.bytes * 8e-9 / done.seconds, 4) if done.seconds else 0.0,
        )
        for sender, done in found
        if done.iterations
    ]


def header(test: Test, in_gbits: bool) -> str:
    """Return the line above the results, in perftest's order."""
    if test == Test.LATENCY:
        times = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99%", "99.9%")
        return f"{'#bytes':>16}{'#iterations':>16}" + "".join(f"{name + '[usec]':>16}" for name in times)
    unit = "Gb/sec" if in_gbits else "MiB/sec"
    rates = (f"BW peak[{unit}]", f"BW average[{unit}]", "MsgRate[Mpps]")
    return f"{'#bytes':>20}{'#iterations':>20}" + "".join(f"{name:>20}" for name in rates)


def line(run: PerfRun, in_gbits: bool) -> str:
    """Return one size's results."""
    result = result_of(run, in_gbits)
    if run.times is not None:
        times = "".join(f"{each:>16.2f}" for each in run.times.values())
        return f"{result.MsgSize:>16}{result.n_iterations:>16}{times}"
    rates = f"{result.BW_peak:>20.2f}{result.BW_average:>20.2f}{result.MsgRate:>20.6f}"
    return f"{result.MsgSize:>20}{result.n_iterations:>20}{rates}"


def second_line(second: Second) -> str:
    """Return one interval line: time, rate, retransmissions, each plane's share, EVs that are not GOOD."""
    total = sum(second.plane_gbps) or 1.0
    shares = " ".join(f"{each / total:4.0%}" for each in second.plane_gbps)
    return (
        f"  {second.start:6.2f}-{second.end:6.2f} s  {second.gbps:8.3f} Gb/s  retransmitted {second.retransmitted:6d}  "
        f"planes {shares}{_not_good(second.evs)}"
    )


def _not_good(evs: Sequence[dict[str, int]]) -> str:
    wrong = []
    for plane, states in enumerate(evs):
        counts = [f"{count} {state}" for state, count in states.items() if state != "GOOD"]
        if counts:
            wrong.append(f"plane {plane}: {' and '.join(counts)}")
    return f"  EVs {', '.join(wrong)}" if wrong else ""


def plane_lines(planes: Sequence[PlaneShare]) -> list[str]:
    """Return the table of planes."""
    names = ("sent pkts", "received pkts", "share", "retransmitted", "lost", "marked", "trimmed")
    lines = [f"{'plane':>6}  {'address':<22}" + "".join(f"{name:>15}" for name in names) + "  EVs"]
    for each in planes:
        cells = (each.sent_packets, each.received_packets, f"{each.share:.1%}", each.retransmitted)
        states = ", ".join(f"{count} {state}" for state, count in each.evs.items())
        numbers = "".join(f"{cell:>15}" for cell in (*cells, each.lost, each.marked, each.trimmed))
        lines.append(f"{each.plane:>6}  {each.address:<22}{numbers}  {states}")
    return lines
