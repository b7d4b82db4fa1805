"""What Wireshark shows of a carrier when our plugin knows the fabric."""

from pathlib import Path

import pytest

from openmrc.fabric.addressing.carriers import carrier_planes
from openmrc.fabric.addressing.paths import choices, path
from openmrc.wire.codes import Opcode
from openmrc.wire.pcapng import PcapngWriter
from openmrc.wire.wireshark import plugin

from ..fabric.small_fabrics import plan
from ..wire.packets import framed
from .test_tshark import rows, sample

pytestmark = pytest.mark.needs("tshark")
MESSAGE = sample(next(iter(Opcode)))


def shown(tmp_path: Path, name: str, destinations: list[str]) -> list[list[str]]:
    """Return carrier and plane of a packet to each address, as tshark shows them."""
    lua, capture = tmp_path / "mrc.lua", tmp_path / "carriers.pcapng"
    lua.write_text(plugin(carrier_planes(plan(name))))
    with capture.open("wb") as file:
        writer = PcapngWriter(file, ["p0"])
        for at, destination in enumerate(destinations):
            writer.write(0, 1_700_000_000_000_000_000 + at, framed(MESSAGE, destination=destination))
    return rows(capture, ["mrc.carrier", "mrc.carrier.plane"], "-X", f"lua_script:{lua}")


@pytest.mark.parametrize(
    "name", ["two-tier", "bundles", "three-tier", "two-sites", "one-switch-a-site", "shifting-downlinks"]
)
def test_every_path_is_told_as_its_switches_and_port(name: str, tmp_path: Path) -> None:
    made = plan(name)
    last = made.topology.nics - 1
    ways = [path(made, 0, last, way) for sids in made.planes for way in choices(sids.shape, 0, last)]
    wanted = []
    for way in ways:
        plane = way.choice.plane
        hops = [made.topology.name(node) for node in way.nodes[1:-1]]
        hops.append(f"port {made.planes[plane].shape.t0_port_of(last)}")
        wanted.append([f"plane {plane}: {' > '.join(hops)}", str(plane)])
    assert shown(tmp_path, name, [way.address for way in ways]) == wanted


def test_an_address_that_arrives_names_the_nic_s_switch_and_another_is_left_alone(tmp_path: Path) -> None:
    made = plan("two-tier")
    found = shown(tmp_path, "two-tier", [made.nic_address(1, 6), "2001:db8::1"])
    assert found == [["plane 1: port 2 of p1-t0-01", "1"], ["", ""]]
