"""Compile the simulator with a transport, or load it from the cache, by running a few packets and a fault."""

import msgspec

from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import simulate


def warm(_entry: str = "") -> None:
    """Compile every entry of MRC that is compiled in this process."""
    compiled("mrc")


def compiled(transport: str) -> str:
    """Compile a transport's code; return its name."""
    plane = {"count": 2, "host_gbps": 100, "t0": {"down": 2, "up": 2}, "t1": {"down": 2}}
    simulate(
        msgspec.convert(
            {
                "name": "warm",
                "fabric": {"name": "warm", "hosts": {"count": 4}, "planes": [plane]},
                "transport": {"name": transport},
                "workloads": [{"kind": "permutation", "size": 20_000}],
                "faults": [{"at": "0us", "for": "1us", "down": "h0 port 0"}],
                "until": "1ms",
            },
            Scenario,
        )
    )
    return transport
