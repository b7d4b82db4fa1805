"""Small worlds for the tests of the loop: fabrics, permutations, runs."""

from __future__ import annotations

import numpy as np

from openmrc.core.rows import Table
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import LoopTransport
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Trimming
from openmrc.sim.transports.datagrams import DatagramTransport
from openmrc.sim.workloads.traffic import Traffic, traffic

# A scenario as a user writes it: training steps beside a permutation, and a slow port.
STEPS = """
name: steps
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: datagrams}
workloads:
  - {kind: training_step, steps: 2, compute: 10us, collectives: [{kind: ring_all_reduce, size: 100KB}]}
  - {kind: permutation, size: 20KB}
faults:
  - {at: 3us, for: 2us, rate: 50Gbps, on: h1 port 0}
until: 5ms
"""


def leaf_spine(hosts: int = 16, down: int = 4, planes: int = 1, gbps: float = 400, latency_ns: int = 1000) -> Topology:
    """Return a two-tier fabric with equal links everywhere."""
    t0 = Tier(down=down, up_link_ns=latency_ns, switch_ns=0, buffer_kb=0)
    plane = Plane(t0=t0, t1=Tier(switch_ns=0, buffer_kb=0), host_gbps=gbps, host_link_ns=latency_ns, count=planes)
    return build(Fabric(name="small", hosts=Hosts(count=hosts), planes=(plane,)))


def three_tiers() -> Topology:
    """Return 16 NICs in 4 pods."""
    tier = {"up_link_ns": 500, "switch_ns": 250, "buffer_kb": 0}
    plane = Plane(
        t0=Tier(down=2, **tier),
        t1=Tier(down=2, **tier),
        t2=Tier(switch_ns=250, buffer_kb=0),
        host_gbps=100,
        host_link_ns=300,
    )
    return build(Fabric(name="tall", hosts=Hosts(count=16), planes=(plane,)))


def shifted(nics: int, size: int, by: int = 1, start: int = 0) -> Traffic:
    """Return one message from every NIC to the one `by` places further."""
    nic = np.arange(nics)
    return traffic(nic, (nic + by) % nics, size, start)


def incast(senders: int, size: int, to: int = 0) -> Traffic:
    """Return one message from each of the last NICs to one."""
    return traffic(np.arange(1, senders + 1), to, size)


def on_wire(transport: LoopTransport) -> int:
    """Return what a full packet occupies a link for (bytes)."""
    settings = transport.network
    return settings.mtu + settings.header


class Blast(DatagramTransport):
    """The transport without feedback, in a network whose queues have no limit unless its settings say so."""

    def __init__(self, settings: NetworkSettings | None = None) -> None:
        super().__init__(settings or NetworkSettings(buffer_bdp=0, trimming=Trimming.NEVER))


def same(one: Table[object], other: Table[object]) -> bool:
    """Tell whether two tables hold the same bytes."""
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
