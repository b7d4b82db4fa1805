"""The transports a scenario can name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openmrc.errors import ConfigError
from openmrc.fabric.topology import Topology
from openmrc.sim import datagrams
from openmrc.sim import run as loop
from openmrc.sim.network import NetworkSettings
from openmrc.sim.scenario import Transport
from openmrc.sim.tables import Network, Routing
from openmrc.sim.traffic import Traffic


@dataclass(frozen=True)
class Datagrams:
    """Messages without any feedback, for the network alone."""

    mtu: int
    name: str = "datagrams"

    def network_settings(self) -> NetworkSettings:
        return NetworkSettings(mtu=self.mtu, routing=Routing.HASH)

    def build(self, topology: Topology, traffic: Traffic, network: Network, seed: int) -> datagrams.Datagrams:
        return datagrams.build(topology.nics, traffic.messages, len(network.hops), self.mtu, seed=seed)

    def counters(self, state: datagrams.Datagrams) -> dict[str, Any]:
        return {"bytes_arrived": int(datagrams.arrived(state).sum())}


def transport_of(wanted: Transport) -> loop.Transport:
    """Return the transport that a scenario asks for, with its settings."""
    if wanted.name == "datagrams":
        return Datagrams(wanted.mtu)
    raise ConfigError(f"transport: {wanted.name!r} is not built in")
