"""Compile the loop of the simulator with MRC, by running one message and one fault over a small fabric."""

import numpy as np

from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.sim.loop.fault_events import FaultKind, faults
from openmrc.sim.loop.run import run
from openmrc.sim.results.samples import LinkSampler
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic

_NICS, _BYTES = 8, 10_000


def warm(_entry: str = "") -> None:
    """Compile every entry that is compiled in this process, or load it from the cache."""
    plane = Plane(
        t0=Tier(down=4, up_link_ns=500, switch_ns=0, buffer_kb=0),
        t1=Tier(switch_ns=0, buffer_kb=0),
        host_gbps=100,
        host_link_ns=500,
        count=2,
    )
    topology = build(Fabric(name="warm", hosts=Hosts(count=_NICS), planes=(plane,)))
    nic = np.arange(_NICS)
    mends_nothing = faults(0, FaultKind.LINK_UP, 0)
    recorder = LinkSampler(topology)
    run(
        topology,
        traffic(nic, (nic + 4) % _NICS, _BYTES, 0),
        MrcTransport(),
        broken=mends_nothing,
        observe=lambda world: recorder.take(world.now, world.network),
    )
