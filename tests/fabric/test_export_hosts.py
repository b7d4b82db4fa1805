"""The hosts' files, against netplan's own generator and against what endpoints read."""

import ipaddress
import json
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import choices, path
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import export
from openmrc.fabric.export.view import views
from openmrc.live.host.nic_file import NicFile
from tests.fabric.small_fabrics import plan


def files(name: str, host: int, options: ExportOptions | None = None) -> dict[str, str]:
    found = dict(export(plan(name), "hosts", options or ExportOptions(), [host]))
    return {file.split(".", 1)[1]: text for file, text in found.items()}


@pytest.mark.needs("netplan")
@pytest.mark.parametrize("name", ["two-tier", "unlike-planes", "shifting-downlinks"])
def test_netplan_makes_networkd_files_of_it_that_say_what_ours_do(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "etc" / "netplan"
    folder.mkdir(parents=True)
    (folder / "mrc.yaml").write_text(files(name, 1)["netplan.yaml"])
    (folder / "mrc.yaml").chmod(0o600)
    subprocess.run(["netplan", "generate", "--root-dir", tmp_path], check=True, capture_output=True, timeout=60)
    made = {file.name: file.read_text() for file in (tmp_path / "run" / "systemd" / "network").iterdir()}
    ours = files(name, 1, ExportOptions(host_format="networkd"))
    ports = [file.removesuffix(".network") for file in ours if file.endswith(".network")]
    assert ports
    for port in ports:
        assert _words(made[f"10-netplan-{port}.network"], "Address") == _words(ours[f"{port}.network"], "Address")
        assert _words(made[f"10-netplan-{port}.network"], "Gateway") == _words(ours[f"{port}.network"], "Gateway")
        assert _words(made[f"10-netplan-{port}.network"], "Destination") == _words(
            ours[f"{port}.network"], "Destination"
        )
    for port in set(ports) - {"lo"}:
        assert _words(made[f"10-netplan-{port}.link"] + made[f"10-netplan-{port}.network"], "MACAddress") >= _words(
            ours[f"{port}.link"], "MACAddress"
        )
        assert "9000" in _words(made[f"10-netplan-{port}.link"] + made[f"10-netplan-{port}.network"], "MTUBytes")


def _words(text: str, key: str) -> set[str]:
    return {line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")}


def test_a_host_s_gateways_are_its_switches_and_the_switches_next_hops_are_its_ports() -> None:
    made = plan("two-tier")
    network = yaml.safe_load(files("two-tier", 5)["netplan.yaml"])["network"]["ethernets"]
    addresses = {switch.name: switch.address for switch in views(made, ExportOptions())}
    for plane in range(2):
        port = network[f"mrc0p{plane}"]
        place = json.loads(files("two-tier", 5)["map.json"])["nics"][0]["planes"][plane]
        assert port["routes"][0]["via"] == addresses[place["t0"]]
        switch = next(each for each in views(made, ExportOptions()) if each.name == place["t0"])
        assert port["addresses"] == [f"{switch.peer_addresses[place['t0_port']]}/64"]
        assert port["macaddress"] == place["mac"] == switch.peer_mac(place["t0_port"])
        assert f"{place['address']}/128" in network["lo"]["addresses"]


def test_what_endpoints_read_describes_the_nic() -> None:
    nic = msgspec.json.decode(files("two-tier", 2)["0.nic.json"], type=NicFile)
    assert (nic.name, nic.link_gbps, nic.trimming) == ("h2", 200, True)
    assert nic.settings(4096).mtu == 4096


def test_what_endpoints_read_knows_how_long_the_longest_path_is() -> None:
    """Ten us in both hosts, a packet of 4,246 bytes at 100G, and both ways of four cables and three switches."""
    near = msgspec.json.decode(files("two-tier", 2)["0.nic.json"], type=NicFile).base_rtt_us
    far = msgspec.json.decode(files("two-sites", 2)["0.nic.json"], type=NicFile).base_rtt_us
    assert near == pytest.approx(10 + 4246 * 8 / 100e3 + 2 * (2 * 0.05 + 2 * 0.15 + 3 * 0.6))
    assert far - near == pytest.approx(2 * (5 + 0.6))  # a long link, and a switch more


@pytest.mark.parametrize("name", ["two-tier", "three-tier", "two-sites", "shifting-downlinks", "unlike-planes"])
def test_what_endpoints_read_leads_along_every_path_to_every_nic(name: str) -> None:
    made = plan(name)
    own = 2 * made.topology.nics_per_host
    nic = msgspec.json.decode(files(name, 2)["0.nic.json"], type=NicFile)
    for plane, shape in enumerate(made.topology.planes):
        expected: dict[str, list[str]] = {}
        for other in range(made.topology.nics):
            if other != own:
                ways = [path(made, own, other, way).address for way in choices(shape, own, other)]
                expected[made.nic_address(plane, other)] = ways
        assert nic.carriers[plane] == expected


def test_the_map_leads_from_gpu_to_nic_to_plane() -> None:
    found = json.loads(files("unlike-planes", 1)["map.json"])
    assert found["gpus"] == [{"gpu": 0, "nic": "h1-n0"}, {"gpu": 1, "nic": "h1-n1"}]
    assert [[place["t0"] for place in nic["planes"]] for nic in found["nics"]] == [
        ["p0-t0-00", "p1-t0-00"],
        ["p0-t0-01", "p1-t0-01"],
    ]
    for nic in found["nics"]:
        for place in nic["planes"]:
            ipaddress.IPv6Address(place["address"])


def test_ports_are_called_as_the_machines_call_them() -> None:
    options = ExportOptions(interface="enp{nic}s0f{plane}np0")
    network = yaml.safe_load(files("unlike-planes", 1, options)["netplan.yaml"])["network"]["ethernets"]
    assert set(network) == {"lo", "enp0s0f0np0", "enp0s0f1np0", "enp1s0f0np0", "enp1s0f1np0"}
    with pytest.raises(ConfigError, match="such as enp"):
        files("unlike-planes", 1, ExportOptions(interface="eth0"))
    with pytest.raises(ConfigError, match="several ports of a machine"):
        files("unlike-planes", 1, ExportOptions(interface="eth{nic}"))
