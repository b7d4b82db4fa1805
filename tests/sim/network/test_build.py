"""The tables of a network: the same however many links are initialised at a time; what they cannot hold."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build as build_fabric
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.sim.network import build
from openmrc.sim.network.build import NetworkSettings

SLOW = Plane(t0=Tier(down=4, switch_ns=300), t1=Tier(), host_gbps=100, count=2)
FAST = Plane(t0=Tier(down=8, switch_ns=500), t1=Tier(), host_gbps=400)


@pytest.mark.parametrize("lossless", [False, True])
def test_tables_are_the_same_in_parts_of_any_length(lossless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = build_fabric(Fabric(name="three planes", hosts=Hosts(count=32), planes=(SLOW, FAST)))
    settings = NetworkSettings(lossless=lossless)
    whole = build.build(topology, settings, hops=10, seed=3)
    monkeypatch.setattr(build, "PART", 7)
    parts = build.build(topology, settings, hops=10, seed=3)
    for name, one, other in zip(whole._fields, whole, parts, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other)), name


def test_more_t0s_than_a_packet_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = build_fabric(Fabric(name="wide", hosts=Hosts(count=32), planes=(SLOW, FAST)))
    settings = NetworkSettings()
    monkeypatch.setattr(build, "LARGEST", 7)
    with pytest.raises(ConfigError, match="wide: 8 T0s in a plane; at most 7 can be simulated"):
        build.build(topology, settings, hops=10)


def test_packets_longer_than_their_field_can_hold_are_refused() -> None:
    with pytest.raises(ConfigError, match="mtu"):
        NetworkSettings(mtu=1 << 15)
