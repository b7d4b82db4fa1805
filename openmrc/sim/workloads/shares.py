"""Let a workload run on some hosts only, and again and again: two jobs share a fabric, checkpoints have a schedule.

`hosts: 0-63, 96-126/2` are hosts 0 to 63, and every second one from 96 to 126. Inside the workload they are numbered
from 0, in this order.
"""

import re
from dataclasses import replace

import numpy as np

from openmrc.base.amounts import ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import NOWHERE, Ids, Parameters, WorkloadGraph, WorkloadHosts, refuse_many

AGAIN = 1_000_003  # between the seeds of a workload's beginnings: those of other workloads are neighbours
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/([1-9]\d{0,8}))?)?")


def plan_of(hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    """Return the plan of a workload on its hosts, as often as it begins."""
    made = [_once(hosts, parameters, seed + AGAIN * number) for number in range(parameters.times)]
    whole = made[0] if parameters.every is None else in_turn(made, ps_of(parameters.every))
    whole.second_class = parameters.second_class
    message, step = ps_of(parameters.message_time), ps_of(parameters.step_time)
    if message or step:
        whole.delay(message, step)
    return whole


def _once(hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    if parameters.hosts is None:
        return parameters.plan(hosts, seed)
    members = members_of(parameters.hosts, hosts.count)
    return placed(parameters.plan(part_of(hosts, members), seed), members, hosts.count)


def members_of(text: str, hosts: int) -> Ids:
    """Return the hosts that a text such as `0-63, 96-126/2` names."""
    found = [_members(part.strip(), hosts) for part in text.split(",")]
    members = np.concatenate(found)
    if len(np.unique(members)) < len(members):
        raise ConfigError(f"workload: hosts: {text!r} names a host twice")
    return members


def _members(text: str, hosts: int) -> Ids:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ConfigError(f"workload: hosts: {text!r}: expected ranges such as 0-63, or 0-126/2 for every second host")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if not first <= last < hosts:
        raise ConfigError(f"workload: hosts: {text!r}: hosts are 0..{hosts - 1}, the smaller number first")
    return np.arange(first, last + 1, step, dtype=np.int64)


def part_of(hosts: WorkloadHosts, members: Ids) -> WorkloadHosts:
    """Return some hosts of a fabric; they keep its scale-up domains if they are whole ones."""
    domain = hosts.domain
    whole = len(members) % domain == 0 and bool(
        (members.reshape(-1, domain) == members[::domain, None] // domain * domain + np.arange(domain)).all()
    )
    return replace(hosts, count=len(members), domain=domain if whole else 1)


def placed(plan: WorkloadGraph, members: Ids, hosts: int) -> WorkloadGraph:
    nodes = plan.nodes()
    moves = nodes.destination != NOWHERE
    nodes.source = members[nodes.source]
    nodes.destination = np.where(moves, members[np.where(moves, nodes.destination, 0)], NOWHERE)
    return replace(plan, hosts=hosts, _nodes=[nodes])


def in_turn(plans: list[WorkloadGraph], every: int) -> WorkloadGraph:
    """Return plans as one, each beginning a time (ps) after the one before."""
    refuse_many(sum(plan.count for plan in plans), "times")
    whole = WorkloadGraph(plans[0].hosts)
    for number, plan in enumerate(plans):
        nodes = plan.nodes()
        nodes.start = nodes.start + number * every
        whole.append(replace(plan, _nodes=[nodes]))
    return whole
