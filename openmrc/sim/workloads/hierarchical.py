"""Hierarchical all-reduce: inside a scale-up domain first, then across domains, then inside again.

The network of a domain is not simulated packet by packet: its part takes bytes / rate plus one latency a step.
Across domains, the hosts in the same place of their domains form a ring over their part of the vector.
"""

from __future__ import annotations

import numpy as np

from openmrc.errors import ConfigError
from openmrc.sim.workloads.amounts import Bytes, bytes_of, ps_of
from openmrc.sim.workloads.parameters import Amount, Parameters
from openmrc.sim.workloads.plan import Hosts, Plan
from openmrc.sim.workloads.ring import around
from openmrc.units import PS_PER_S


class HierarchicalAllReduce(Parameters, frozen=True, kw_only=True, tag="hierarchical_all_reduce"):
    """The domains are the fabric's, or of the size given here."""

    size: Bytes  # of the whole vector, the same at every host
    domain: Amount = 0  # hosts in a domain; 0: as the fabric's scale_up says
    domain_gbps: Amount = 0  # of one host inside its domain; 0: as the fabric says
    steps: Amount = 0  # of the ring across domains; 0: all


def plan(hosts: Hosts, parameters: HierarchicalAllReduce, seed: int) -> Plan:
    """Return computations that stand for the domain's part, with a ring across domains between them."""
    made = Plan(hosts.count)
    domain, rate = _domain(hosts, parameters)
    size = bytes_of(parameters.size)
    inside = (domain - 1) * (size * 8 * PS_PER_S // (domain * rate) + hosts.domain_latency)
    everyone = np.arange(hosts.count)
    scattered = made.computations(everyone, inside, ps_of(parameters.start))
    places = everyone.reshape(-1, domain).T  # a row per place in the domain, a column per domain
    if places.shape[1] < 2:
        made.follow(scattered, made.computations(everyone, inside))
        return made
    steps = 2 * (places.shape[1] - 1)
    passed = around(made, places, -(-size // domain), min(steps, parameters.steps or steps))
    made.follow(scattered[places.ravel()], passed[0])
    gathered = made.computations(everyone, inside)
    arrived = np.roll(passed[-1].reshape(places.shape), 1, axis=1)
    made.follow(arrived.ravel(), gathered[places.ravel()])
    return made


def _domain(hosts: Hosts, parameters: HierarchicalAllReduce) -> tuple[int, int]:
    domain = parameters.domain or hosts.domain
    rate = parameters.domain_gbps * 10**9 or hosts.domain_bits_per_s
    if domain < 2 or hosts.count % domain:
        raise ConfigError(f"hierarchical_all_reduce: domain: {domain} must be 2 or more and divide {hosts.count} hosts")
    if not rate:
        raise ConfigError("hierarchical_all_reduce: domain_gbps: 0, and the fabric has no scale_up that gives a rate")
    return domain, rate
