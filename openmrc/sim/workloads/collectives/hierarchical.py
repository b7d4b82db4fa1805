"""Hierarchical all-reduce: first inside a scale-up domain, then across domains, then inside again.

Inside: a ring reduce-scatter first and a ring all-gather at the end, among the hosts of a domain. Across: the hosts at
the same position of their domains form a ring over their part of the vector. If the fabric has scale-up domains, the
inner rings are messages over their networks. `domain` and `domain_gbps` describe domains that the fabric does not have:
the inner part is then a computation of bytes / rate plus one latency per step.
"""

import numpy as np

from openmrc.base.amounts import Bytes, bytes_of, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.collectives.ring import around
from openmrc.sim.workloads.plan import Amount, Ids, Parameters, WorkloadGraph, WorkloadHosts
from openmrc.units import PS_PER_NS, PS_PER_S


class HierarchicalAllReduce(Parameters, frozen=True, kw_only=True, tag="hierarchical_all_reduce"):
    """The domains are the fabric's, or of the size and rate given here."""

    size: Bytes  # of the whole vector, the same at every host
    domain: Amount = 0  # hosts per domain; 0: those of the fabric's scale_up
    domain_gbps: Amount = 0  # of one host inside its domain; 0: over the fabric's scale-up network
    domain_latency_ns: Amount = 0  # of a step inside; only with domain_gbps
    steps: Amount = 0  # of the ring across domains; 0: all

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the rings, ordered by step."""
        made = WorkloadGraph(hosts.count)
        domain = _domain(hosts, self)
        members = np.arange(hosts.count).reshape(-1, domain)  # a row per domain
        begun = made.computations(members.ravel(), 0, ps_of(self.start)).reshape(members.shape)
        scattered = _inside(made, members, self, begun)
        crossed = _across(made, members.T, self, scattered.T).T if len(members) > 1 else scattered
        _inside(made, members, self, crossed)
        return made


def _across(made: WorkloadGraph, places: Ids, parameters: HierarchicalAllReduce, ready: Ids) -> Ids:
    """Add a ring for each place, a column per domain; return for each host the node that ends its part."""
    steps = 2 * (places.shape[1] - 1)
    part = -(-bytes_of(parameters.size) // len(places))
    return _ring(made, places, part, min(steps, parameters.steps or steps), ready)


def _inside(made: WorkloadGraph, members: Ids, parameters: HierarchicalAllReduce, ready: Ids) -> Ids:
    """Add one half of an all-reduce within each domain."""
    size, domain = bytes_of(parameters.size), members.shape[1]
    if not parameters.domain_gbps:
        return _ring(made, members, size, domain - 1, ready)
    rate, latency = parameters.domain_gbps * 10**9, parameters.domain_latency_ns * PS_PER_NS
    took = made.computations(members.ravel(), (domain - 1) * (size * 8 * PS_PER_S // (domain * rate) + latency))
    made.follow(ready.ravel(), took)
    return took.reshape(members.shape)


def _ring(made: WorkloadGraph, members: Ids, size: int, steps: int, ready: Ids) -> Ids:
    """Add a ring through each row, beginning after `ready`; return the message that each host receives last."""
    passed = around(made, members, size, steps)
    made.follow(ready.ravel(), passed[0])
    return np.roll(passed[-1].reshape(members.shape), 1, axis=1)


def _domain(hosts: WorkloadHosts, parameters: HierarchicalAllReduce) -> int:
    """Return the hosts per domain; refuse a domain that neither the fabric nor the workload describes."""
    domain = parameters.domain or hosts.domain
    if domain < 2 or hosts.count % domain:
        raise ConfigError(f"hierarchical_all_reduce: domain: {domain} must be 2 or more and divide {hosts.count} hosts")
    if not parameters.domain_gbps and hosts.domain % domain:
        has = f"of {hosts.domain} hosts" if hosts.domain > 1 else "none (no scale_up)"
        raise ConfigError(
            f"hierarchical_all_reduce: domain: {domain} without domain_gbps, and the fabric's domains are {has}; "
            "give domain_gbps, or a fabric whose scale_up matches"
        )
    return domain
