"""The lab's stream on the simulator: the same fabric, the same two NICs, the same pieces, the same schedule of faults.

Only the link delays differ from the fabric's: a processor forwards in the lab, so each cable gets its share of the
software round-trip time of an idle lab. DIFFERENCES lists the other differences.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.lab.experiments.pieces import PIECE, Arrivals
from bench.lab.experiments.stream_mrc import OUTSTANDING
from bench.lab.experiments.trial import Trial
from harness import simulated_runs
from openmrc.base.faults import Schedule
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.topology import Topology
from openmrc.lab.faults import ExecutedStep
from openmrc.lab.layout import Lab
from openmrc.lab.run import SOFTWARE_US, describe
from openmrc.live.attributes import TIMEOUT_UNIT_US, ConnectionOptions
from openmrc.live.checks import MTUS
from openmrc.sim.loop import run as loop
from openmrc.sim.loop.run import World
from openmrc.sim.scenario import timeline
from openmrc.sim.scenario.description import Transport
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.workloads.joined import joined
from openmrc.sim.workloads.plan import WorkloadGraph
from openmrc.units import NEVER, PS_PER_NS, PS_PER_S

KIND = "simulated"
DIFFERENCES = (
    "The simulator forwards every packet in the same time (a share of the round trip of an idle lab); in the lab, "
    "threads also wait for a processor, which lengthens round trips, interruptions, stalls and loss delays.",
    "Simulated ports take exactly the serialisation time for each packet; the lab's HTB passes bursts of 16 KB.",
    "A simulated packet is 4 KiB plus a fixed header, a lab packet has its actual headers, so full "
    "rates differ by a few parts in a thousand.",
    "A simulated piece counts when its sender knows of its delivery, a lab piece when the receiver takes it.",
    "A simulated NIC detects immediately that its own port is down; a lab endpoint waits for the kernel to say so.",
)
_SEED = 1
_CABLES = 8  # of a round trip
_PATIENCE_S = 5  # simulated, in addition to the stream's own time


def stream(lab: Lab, source: str, destination: str, seconds: float, schedule: Schedule) -> Trial:
    """Simulate a stream of about `seconds`; times are nanoseconds from its start."""
    topology = build(_slow_to_forward(lab.topology.fabric))
    here, there = topology.node_named(source), topology.node_named(destination)
    described = describe(lab, here, trimming=True)
    tuning = described.settings(MTUS[-1])
    settings: dict[str, bool | int | float | str] = {
        "evs": described.evs_per_plane * len(described.planes),
        "sack_threshold": tuning.sack_threshold,
        "target_delay_us": tuning.target_delay_us,
        "trimming": tuning.trimming,
        "timestamp_unit": tuning.timestamp_unit,
        "timeout_us": TIMEOUT_UNIT_US * (1 << ConnectionOptions().timeout),  # the simulator's default suits 800 Gb/s
    }
    transport = transport_of(Transport(settings=settings), topology)
    times = deliveries(topology, (here, there), seconds, described.link_gbps, transport, schedule)
    steps = [
        ExecutedStep(step.at / PS_PER_S, 0.0, step.where, dict(step.change), 0, step.at // PS_PER_NS)
        for step in schedule.steps
    ]
    return Trial(Arrivals(kind=KIND, sent=len(times), nanoseconds=times.tolist()), times, 0, steps)


def deliveries(
    topology: Topology,
    ends: tuple[int, int],
    seconds: float,
    gbps: float,
    transport: loop.LoopTransport,
    schedule: Schedule,
    observe: Callable[[World], None] | None = None,
) -> NDArray[np.int64]:
    """Return when (ns) each piece of a stream between two NICs was delivered, in order, as its sender knows it.

    The stream has as many pieces as `gbps` deliver in `seconds`. ConfigError if one of them is not delivered.
    """
    source, destination = ends
    count = max(1, int(seconds * gbps * 1e9 / 8 / PIECE))
    plan = WorkloadGraph(topology.nics)
    ids = plan.messages(np.full(count, source), destination, PIECE)
    if count > OUTSTANDING:
        plan.follow(ids[:-OUTSTANDING], ids[OUTSTANDING:], acknowledged=True)
    plan.connect(0)
    results = simulated_runs.run(
        topology,
        joined([("stream", plan)]).traffic,
        transport,
        broken=timeline.columns(topology, schedule, _SEED, []),
        seed=_SEED,
        until=round((seconds + _PATIENCE_S) * PS_PER_S),
        observe=observe,
    )
    finished = results.finished[ids]
    if int(finished.max()) == NEVER:
        raise ConfigError(
            f"the simulated stream did not finish: {int((finished == NEVER).sum())} of {count} pieces are missing"
        )
    return np.maximum.accumulate(finished) // PS_PER_NS  # in order, as the lab's receiver consumes them


def _slow_to_forward(fabric: Fabric) -> Fabric:
    """Return the fabric with the link delays of a lab: a round trip crosses two tiers up and down."""
    software = int(SOFTWARE_US * 1000 / _CABLES)
    slow = [
        msgspec.structs.replace(plane, host_link_ns=software, t0=msgspec.structs.replace(plane.t0, up_link_ns=software))
        for plane in fabric.planes
    ]
    return msgspec.structs.replace(fabric, planes=tuple(slow))
