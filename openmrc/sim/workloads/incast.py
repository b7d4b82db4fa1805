"""Incast: many hosts send to one. Optionally, it also measures a victim flow to a neighbour of the receiver."""

from __future__ import annotations

import numpy as np

from openmrc.base.amounts import Bytes, bytes_of, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.parameters import Amount, Count, Parameters
from openmrc.sim.workloads.plan import WorkloadGraph, WorkloadHosts


class Incast(Parameters, frozen=True, kw_only=True, tag="incast"):
    """`senders` hosts send to `receiver`, all at once."""

    size: Bytes
    senders: Count
    receiver: Amount = 0
    first_sender: Amount | None = None  # senders are consecutive from here; default: random
    victim: tuple[Amount, Amount] | None = None  # source and destination of one more flow of the same size
    single_path: bool = False  # one path per sender, as TCP or plain RoCE; not for the victim


def plan(hosts: WorkloadHosts, parameters: Incast, seed: int) -> WorkloadGraph:
    """Return the messages."""
    made = WorkloadGraph(hosts.count)
    for name, host in (("receiver", parameters.receiver), ("first_sender", parameters.first_sender or 0)):
        if host >= hosts.count:
            raise ConfigError(f"incast: {name}: {host} is not a host; hosts are 0..{hosts.count - 1}")
    others = np.delete(np.arange(hosts.count), parameters.receiver)
    if parameters.senders > len(others):
        raise ConfigError(f"incast: senders: {parameters.senders} is more than the {len(others)} other hosts")
    if parameters.first_sender is None:
        senders = np.sort(np.random.default_rng(seed).choice(others, parameters.senders, replace=False))
    else:
        senders = np.roll(others, -int(np.searchsorted(others, parameters.first_sender)))[: parameters.senders]
    size, start = bytes_of(parameters.size), ps_of(parameters.start)
    made.messages(senders, parameters.receiver, size, start, single_path=parameters.single_path)
    if parameters.victim is not None:
        made.mark("victim", int(made.messages(*parameters.victim, size, start)[0]))
    return made
