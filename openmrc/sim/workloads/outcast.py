"""Outcast: one host sends to many."""

from __future__ import annotations

import numpy as np

from openmrc.base.amounts import Bytes, bytes_of, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.parameters import Amount, Count, Parameters
from openmrc.sim.workloads.plan import WorkloadGraph, WorkloadHosts


class Outcast(Parameters, frozen=True, kw_only=True, tag="outcast"):
    """`sender` sends to `receivers` hosts drawn at random, all at once."""

    size: Bytes
    receivers: Count
    sender: Amount = 0


def plan(hosts: WorkloadHosts, parameters: Outcast, seed: int) -> WorkloadGraph:
    """Return the messages."""
    made = WorkloadGraph(hosts.count)
    if parameters.sender >= hosts.count:
        raise ConfigError(f"outcast: sender: {parameters.sender} is not a host; hosts are 0..{hosts.count - 1}")
    others = np.delete(np.arange(hosts.count), parameters.sender)
    if parameters.receivers > len(others):
        raise ConfigError(f"outcast: receivers: {parameters.receivers} is more than the {len(others)} other hosts")
    receivers = np.sort(np.random.default_rng(seed).choice(others, parameters.receivers, replace=False))
    made.messages(parameters.sender, receivers, bytes_of(parameters.size), ps_of(parameters.start))
    return made
