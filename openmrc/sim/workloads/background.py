"""Background: messages between random hosts at random times, each on one path, like storage and TCP traffic."""

from __future__ import annotations

from typing import Literal

import numpy as np

from openmrc.base.amounts import Bytes, Duration, bytes_of, ps_of
from openmrc.sim.workloads.parameters import Parameters, Share
from openmrc.sim.workloads.plan import WorkloadGraph, WorkloadHosts, refuse_many
from openmrc.units import PS_PER_S


class Background(Parameters, frozen=True, kw_only=True, tag="background"):
    """Arrivals are a Poisson process over all hosts together."""

    size: Bytes  # mean
    sizes: Literal["fixed", "exponential"] = "exponential"
    load: Share  # of each host's rate, on average
    duration: Duration  # time during which messages arrive
    single_path: bool = True


def plan(hosts: WorkloadHosts, parameters: Background, seed: int) -> WorkloadGraph:
    """Return the messages, ordered by start."""
    made = WorkloadGraph(hosts.count)
    draw = np.random.default_rng(seed)
    mean, length = bytes_of(parameters.size), ps_of(parameters.duration)
    expected = parameters.load * hosts.count * hosts.nic_bits_per_s / 8 * length / PS_PER_S / mean
    refuse_many(round(expected), "duration")
    count = int(draw.poisson(expected))
    start = np.sort(draw.integers(0, max(1, length), count)) + ps_of(parameters.start)
    source = draw.integers(0, hosts.count, count)
    destination = (source + draw.integers(1, hosts.count, count)) % hosts.count
    sizes = draw.exponential(mean, count) if parameters.sizes == "exponential" else np.full(count, float(mean))
    bounded = np.clip(sizes.astype(np.int64), 1, (1 << 32) - 1)
    made.messages(source, destination, bounded, start, single_path=parameters.single_path)
    return made
