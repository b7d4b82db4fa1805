"""The summary of a run: one object of plain numbers, with the same keys for every transport and workload.

A flow is a message that moves bytes; computations and barriers are not counted. Its completion time runs from its
start to the last acknowledgement at the sender. Rates are over the time from the first start to the last completion.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core.arrays import Ints
from openmrc.core.host_memory import peak_bytes
from openmrc.fabric.model.topology import LinkTier, Topology
from openmrc.sim.loop import failures
from openmrc.sim.loop.run import Results
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.results import job, unfinished
from openmrc.sim.results.samples import Samples, Span
from openmrc.sim.results.waits import waited_for
from openmrc.sim.scenario.description import Restart
from openmrc.sim.scenario.timeline import ReportedFault
from openmrc.sim.transports.mrc.tap import CaptureTap, Taps
from openmrc.sim.workloads.joined import JoinedTraffic
from openmrc.units import NEVER, PS_PER_S, PS_PER_US
from openmrc.version import __version__

SLOWEST = 20  # flows listed by name


@dataclass(frozen=True)
class SimulationRun:
    """All data of a finished or interrupted run."""

    name: str
    topology: Topology
    work: JoinedTraffic
    results: Results
    samples: Samples
    network: NetworkSettings
    transport: str
    seed: int
    threads: int
    events: list[ReportedFault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    spans: Sequence[Span] = ()  # with finer samples
    captured: Taps | None = None
    capture: CaptureTap = field(default_factory=CaptureTap)
    inside: Ints | None = None  # flows within scale-up domains; None: no domains, or they use the fabric
    restart: Restart | None = None  # cost of a stop of the job, if the scenario defines it

    @property
    def span(self) -> int:
        """Return the time from the first start to the last completion (ps), at least 1."""
        started, finished = self.results.started, self.results.finished
        begun = started[started < NEVER]
        ended = finished[finished < NEVER]
        last = int(ended.max()) if len(ended) and self.is_complete else self.results.now
        return max(1, last - int(begun.min())) if len(begun) else 1

    @property
    def is_complete(self) -> bool:
        return bool((self.results.finished[self.work.moving] < NEVER).all())


def summary(run: SimulationRun) -> dict[str, Any]:
    """Return the summary, in JSON types."""
    flows, finished = run.work.moving, run.results.finished
    done = finished[flows] < NEVER
    of_all = {
        "name": run.name,
        "transport": run.transport,
        "hosts": run.topology.nics,
        "hosts_used": len(np.union1d(run.work.traffic.source[flows], run.work.traffic.destination[flows])),
        "planes": int(run.topology.link_plane.max()) + 1,
        "flows": len(flows),
        "finished": int(done.sum()),
        "failed": int((run.results.failed[flows] < NEVER).sum()),
        "interrupted": run.results.interrupted,
        "fct_us": completion_times(run.results, flows),
        "last_finish_us": _last(run, np.arange(run.work.traffic.messages)),
        "simulated_us": _us(run.results.now),
        "bytes": int(run.work.traffic.size[flows].sum()),
        "packets": packets(run),
        "packet_hops": run.results.hops,
        "goodput_gbps": goodput(run),
        "queue_us": _queues(run),
        "workloads": [_workload(run, number) for number in range(len(run.work.names))],
        "marks_us": {name: [_us_or_none(int(finished[node])) for node in ids] for name, ids in run.work.marks.items()},
        "errors": failures.summarize(run.results.failures, run.topology),
        "slowest": _slowest(run),
        "transport_counters": plain(run.results.counters),
        "events": [{"at_us": _us(event.at), "what": event.text} for event in run.events],
        "warnings": run.warnings,
    }
    return of_all | _summary_of_some(run) | machine(run)


def _summary_of_some(run: SimulationRun) -> dict[str, Any]:
    """Return what only some runs have: unfinished messages, steps of a job, scale-up, captures."""
    result: dict[str, Any] = {}
    if not run.is_complete:
        left = unfinished.unfinished(run.work, run.results)
        result["unfinished"] = unfinished.summarize(left, run.work, run.results, run.topology)
    if "step" in run.work.marks:
        result["step_us"] = step_times(run, run.work.jobs()[0])
        gpus = run.topology.nics * run.topology.gpus_per_nic
        result["waited_for"] = waited_for(run.work, run.results, run.topology)
        result["job"] = job.outcome(run.work, run.results, gpus, run.restart)
    if run.inside is not None:
        result["scale_up"] = scale_up(run, run.inside)
    if run.captured is not None:
        result["captures"] = [
            {"host": run.topology.name(nic), "packets": tap.count, "limit": tap.limit, "beyond_limit": tap.passed}
            for nic in run.capture.nics
            for tap in (run.captured.taps[nic],)
        ]
    return result


def machine(run: SimulationRun) -> dict[str, Any]:
    """Return the run's cost on this machine, and the data that reproduces it."""
    return {
        "setup_s": round(run.results.setup_s, 4),
        "wall_s": round(run.results.wall_s, 4),
        "peak_rss_mb": round(peak_bytes() / 1e6, 1),
        "threads": run.threads,
        "seed": run.seed,
        "version": __version__,
    }


def completion_times(results: Results, flows: Ints) -> dict[str, float | None]:
    """Return mean, percentiles and maximum of the finished among `flows` (us)."""
    done = flows[results.finished[flows] < NEVER]
    return spread((results.finished[done] - results.started[done]) / PS_PER_US)


def spread(values: NDArray[Any]) -> dict[str, float | None]:
    """Return mean, p50, p99 and max; a percentile is an observed value."""
    if not len(values):
        return dict.fromkeys(("mean", "p50", "p99", "max"))
    middle, high = np.percentile(values, [50, 99], method="inverted_cdf")
    found = {"mean": values.mean(), "p50": middle, "p99": high, "max": values.max()}
    return {name: round(float(value), 6) for name, value in found.items()}


def packets(run: SimulationRun) -> dict[str, float]:
    """Return packet counts of the transport, of switches and of failed links."""
    links, counters = run.results.links, run.results.counters
    return {
        "new": int(counters.get("new", counters.get("sent_packets", 0))),
        "retransmitted": int(counters.get("retransmitted", 0)),
        "trimmed": int(links["trimmed"].sum()),
        "dropped": int(links["dropped"].sum() + links["lost"].sum()),
        "dropped_full_queue": int(links["dropped"].sum()),
        "dropped_full_control_queue": int(links["control_full"].sum()),
        "lost_on_links": int(links["lost"].sum()),
        "lost_on_links_down": int(links["lost"].sum() - links["at_random"].sum()),
        "lost_at_random": int(links["at_random"].sum()),
        "duplicated": int(links["duplicated"].sum()),
        "ecn_marked": int(links["marked"].sum()),
        "retransmitted_per_flow": round(counters.get("retransmitted", 0) / max(1, len(run.work.moving)), 6),
    }


def goodput(run: SimulationRun) -> dict[str, Any]:
    """Return the payload rate: of all finished flows, of each plane, and on each tier."""
    topology, span = run.topology, run.span
    done = run.work.moving[run.results.finished[run.work.moving] < NEVER]
    carried = _payload(run) * 8 / 1e9 / (span / PS_PER_S)
    to_nics = topology.link_destination < topology.nics
    tier = topology.link_tier.astype(np.int64)
    downwards = to_nics | (topology.node_tier[topology.link_source] > topology.node_tier[topology.link_destination])
    planes = int(topology.link_plane.max()) + 1
    return {
        "total": round(float(run.work.traffic.size[done].sum()) * 8e-9 / (span / PS_PER_S), 6),
        "flow": _rates(run, done),
        "plane": np.bincount(topology.link_plane[to_nics], carried[to_nics], planes).round(6).tolist(),
        "tier": {
            LinkTier(int(level)).name.lower(): round(float(carried[(tier == level) & downwards].sum()), 6)
            for level in np.unique(tier)
        },
    }


def scale_up(run: SimulationRun, flows: Ints) -> dict[str, Any]:
    """Return the traffic inside scale-up domains: messages, their bytes, and the payload of their links."""
    traffic, finished = run.work.traffic, run.results.finished
    done = flows[finished[flows] < NEVER]
    return {
        "domains": int(run.topology.scale_up_domain().max()) + 1,
        "flows": len(flows),
        "finished": len(done),
        "bytes": int(traffic.size[flows].sum()),
        "arrived_bytes": int(run.results.scale_up_bytes.sum()),
        "goodput_gbps": round(float(traffic.size[done].sum()) * 8e-9 / (run.span / PS_PER_S), 6),
        "fct_us": completion_times(run.results, flows),
    }


def _payload(run: SimulationRun) -> NDArray[np.float64]:
    """Return the payload of each link (bytes), without headers and losses."""
    whole = run.network.mtu + run.network.header
    links = run.results.links
    arrived = np.maximum(0, links["data_bytes"] - links["lost"] * whole)
    payload: NDArray[np.float64] = arrived * (run.network.mtu / whole)
    return payload


def _queues(run: SimulationRun) -> dict[str, float]:
    """Return the longest backlog that a packet found, by tier (us)."""
    peak, tier = run.results.links["peak"], run.topology.link_tier
    return {LinkTier(int(level)).name.lower(): _us(int(peak[tier == level].max())) for level in np.unique(tier)}


def step_times(run: SimulationRun, job: int) -> dict[str, Any]:
    """Return the duration of each synchronous step of a workload (us)."""
    ends = run.results.finished[run.work.steps(job)]
    done = ends[ends < NEVER]
    started = run.results.started[run.work.workload == job]
    started = started[started < NEVER]
    first = int(started.min()) if len(started) else 0
    lengths = np.diff(done, prepend=first) / PS_PER_US
    return {"count": len(ends), "finished": len(done), **spread(lengths), "each": lengths.round(3).tolist()}


def _workload(run: SimulationRun, number: int) -> dict[str, Any]:
    whole = np.flatnonzero(run.work.workload == number)
    mine = whole[run.work.traffic.size[whole] > 0]
    finished = run.results.finished[mine]
    steps = {"step_us": step_times(run, number)} if number in run.work.jobs() else {}
    return steps | {
        "name": run.work.names[number],
        "flows": len(mine),
        "finished": int((finished < NEVER).sum()),
        "bytes": int(run.work.traffic.size[mine].sum()),
        "fct_us": completion_times(run.results, mine),
        "flow_gbps": _rates(run, mine[finished < NEVER]),
        "last_finish_us": _last(run, whole),
    }


def _last(run: SimulationRun, messages: Ints) -> float | None:
    """Return when the last of the flows among these messages finished; of computations, where nothing moves."""
    flows = messages[run.work.traffic.size[messages] > 0]
    finished = run.results.finished[flows if flows.size else messages]
    return _us(int(finished[finished < NEVER].max())) if (finished < NEVER).any() else None


def _rates(run: SimulationRun, done: Ints) -> dict[str, float | None]:
    """Return the rates of finished flows, each over its own time (Gb/s)."""
    took = np.maximum(1, run.results.finished[done] - run.results.started[done])
    return spread(8 * run.work.traffic.size[done] * (PS_PER_S / 1e9) / took)


def _slowest(run: SimulationRun) -> list[dict[str, Any]]:
    """Return the slowest flows, unfinished ones first."""
    flows = run.work.moving
    started, finished = run.results.started[flows], run.results.finished[flows]
    took = np.where(finished < NEVER, finished - started, np.where(started < NEVER, NEVER - started, NEVER))
    return [_flow(run, int(flow)) for flow in flows[np.argsort(-took, kind="stable")[:SLOWEST]]]


def _flow(run: SimulationRun, flow: int) -> dict[str, Any]:
    started, finished = int(run.results.started[flow]), int(run.results.finished[flow])
    return run.work.described(flow, run.topology) | {
        "start_us": _us_or_none(started),
        "fct_us": _us(finished - started) if finished < NEVER else None,
    }


def plain(value: Any) -> Any:
    """Return counters in JSON types: NumPy's numbers as numbers, arrays as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(below) for key, below in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(below) for below in value]
    return value


def _us(ps: int) -> float:
    return ps / PS_PER_US


def _us_or_none(ps: int) -> float | None:
    return _us(ps) if ps < NEVER else None
