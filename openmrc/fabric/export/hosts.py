"""Hosts: the configuration that a machine needs to send on every plane.

  .netplan.yaml          MACs, MTU, addresses and routes (netplan reference: ethernets, `macaddress`, `link-local`,
                         routes with `on-link`), or the same for systemd-networkd:
  .PORT.link, .PORT.network
                         systemd.link(5), systemd.network(5); networkd sends LLDP too, which the check of cables reads
  .sysctl                ip-sysctl, seg6-sysctl and sysctl/net (socket buffers) of the kernel's documentation
  .tc                    queues of the NIC's own ports (tc-prio(8), tc-u32(8)): control first
  .NIC.json, .env        what openmrc endpoints read (`openmrc.live.host.nic_file`): `MRC_NIC` names the first file
  .map.json              GPU to NIC to plane: port, T0, addresses

A NIC answers to its carriers' last words (`UsidPlan.nic_address`) and to its identity, on the loopback interface: the
outer destination of an arriving packet is the former. Carriers leave by the route of their plane's block. A tunnel's
end (RFC 6040) may lose the DSCP mark of the outer header: endpoints that read marks have to read the outer one.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from openmrc.fabric.addressing.paths import stacks
from openmrc.fabric.addressing.usid import UsidPlan, address_text, block_text, identity, prefix_text
from openmrc.fabric.export.addresses import (
    link_local_of_node,
    link_local_of_plane,
    mac,
    mac_of_node,
    mac_of_plane,
    port_address,
)
from openmrc.fabric.export.kernel import LAST_METRIC, filters
from openmrc.fabric.export.options import CONTROL, ExportOptions
from openmrc.fabric.export.view import NodeTexts
from openmrc.fabric.model.port_settings import DEFAULT_BUFFER, Dscp, check_interface, queue_bytes
from openmrc.units import us_from_ps

MOST_PAIRED = 1024  # NICs; each file of an endpoint names every other NIC
CONFIGURATION = "/etc/openmrc"  # folder of the .NIC.json files
_SYSCTLS = (
    "net.ipv6.conf.all.seg6_enabled = 1",
    "net.ipv6.conf.default.seg6_enabled = 1",
    "net.core.rmem_max = 67108864",  # bytes; socket buffers of the endpoint
    "net.core.wmem_max = 67108864",
)
PACKET = 4096 + 150  # bytes of the longest packet with its headers
_HOST_US = 10.0  # us of a round trip, in both hosts; an assumption, to be replaced by a measurement
TARGET_SHARE = 0.5  # share of the fabric's queues, so that congestion control stays below their ECN thresholds


_block = lru_cache(block_text)


class Carriers:
    """The addresses that lead to every NIC, one per path: the same for all NICs of a T0, so computed once for them."""

    def __init__(self, plan: UsidPlan) -> None:
        self._plan = plan
        of_a_host = len(plan.planes) * plan.topology.nics_per_host
        self._from = lru_cache(of_a_host)(self._list_from)

    def of(self, plane: int, nic: int) -> dict[str, list[str]]:
        """Return the addresses that lead from a NIC to each other NIC of a plane, by that NIC's address."""
        known = self._from(plane, self._plan.planes[plane].shape.t0_of(nic))
        return {address: ways for other, (address, ways) in enumerate(known) if other != nic}

    def _list_from(self, plane: int, here: int) -> list[tuple[str, list[str]]]:
        sids = self._plan.planes[plane]
        shape = sids.shape
        begins = [stacks(sids, here, there) for there in range(shape.t0_count)]
        found = []
        for nic in range(self._plan.topology.nics):
            there, port = shape.t0_of(nic), shape.t0_port_of(nic)
            end = [sids.downlink_sid(there, port), *sids.tail(there, port)]
            ways = [address_text(sids.block, begin + end) for begin in begins[there]]
            found.append((sids.nic_address(there, port), ways))
        return found


class ExportedHosts:
    """The hosts of a fabric, and the texts that their files share."""

    def __init__(self, plan: UsidPlan, options: ExportOptions) -> None:
        check_interface(options.interface, plan.topology.nics_per_host, len(plan.planes), "--interface")
        self.plan = plan
        self.options = options
        self.texts = NodeTexts(plan)
        self.carriers = Carriers(plan)

    def files_of(self, host: int) -> Iterator[tuple[str, str]]:
        """Yield (file name, text) of one host."""
        plan, options, name = self.plan, self.options, self.plan.topology.host_name(host)
        nics = range(host * plan.topology.nics_per_host, (host + 1) * plan.topology.nics_per_host)
        ports = list(_ports(plan, self.texts, host, nics, options))
        files = _netplan(ports, options) if options.host_format == "netplan" else _networkd(ports, options)
        files["sysctl"] = "\n".join(_SYSCTLS) + "\n"
        files["tc"] = _queues(tuple(port.place.interface for port in ports))
        files["map.json"] = _json(_map(plan, host, nics, ports))
        if plan.topology.nics <= MOST_PAIRED:
            for nic in nics:
                files[f"{nic - nics[0]}.nic.json"] = _json(endpoint(plan, self.carriers, nic, options.trimming))
            files["env"] = f"MRC_NIC={CONFIGURATION}/{name}.0.nic.json\n"
        yield from ((f"{name}.{ending}", text) for ending, text in files.items())


class _Place(msgspec.Struct):
    """Where a port of a NIC is connected, as the map of a host says it."""

    plane: int
    interface: str
    mac: str
    address: str
    identity: str
    t0: str
    t0_port: int


class _Port(NamedTuple):
    nic: int
    place: _Place
    address: str  # with prefix length
    block: str
    to: str  # what the port leads to: the block, or, if planes share one, the T0
    gateway: str


def _ports(plan: UsidPlan, texts: NodeTexts, host: int, nics: range, options: ExportOptions) -> Iterator[_Port]:
    for number, nic in enumerate(nics):
        own_mac, own_address = mac_of_node(plan.topology, nic), link_local_of_node(plan.topology, nic)
        for plane, sids in enumerate(plan.planes):
            t0, t0_port, network = sids.shape.t0_of(nic), sids.shape.t0_port_of(nic), link_local_of_plane(plane)
            switch = sids.shape.first_t0 + t0
            interface, own = options.interface_of(host, number, plane), mac_of_plane(plane) + own_mac
            address, gateway = f"{network}{own_address}/64", network + texts.link_local[switch]
            if plan.topology.found(nic):
                interface = plan.topology.port_name(nic, plane) or interface
                own, address = mac(plan.topology, plane, nic, plane), port_address(plan.topology, plane, nic, plane)
                gateway = port_address(plan.topology, plane, switch, t0_port).partition("/")[0]
            place = _Place(
                plane, interface, own, sids.nic_address(t0, t0_port), identity(plane, nic), texts.name[switch],
                t0_port,
            )  # fmt: skip
            block, shared = _block(sids.block), plan.topology.fabric.usid.shared
            to = prefix_text(sids.block, sids.t0_sid(t0, 0)) if shared else block
            yield _Port(nic, place, address, block, to, gateway)


def _json(what: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(what), indent=2).decode() + "\n"


def _netplan(ports: list[_Port], options: ExportOptions) -> dict[str, str]:
    """Write YAML without a library, which takes minutes for a large fabric."""
    lines = ["network:", "  version: 2", "  renderer: networkd", "  ethernets:", "    lo:", "      addresses:"]
    lines += [f"      - {port.place.address}/128\n      - {port.place.identity}/128" for port in ports]
    lines.append("      routes:")
    lines += [
        f"      - to: {block}\n        type: blackhole\n        metric: {LAST_METRIC}" for block in _blocks(ports)
    ]
    lines += [
        f'    {port.place.interface}:\n      macaddress: "{port.place.mac}"\n      mtu: {options.mtu}\n'
        "      dhcp4: false\n      dhcp6: false\n      accept-ra: false\n      link-local: []\n"
        f"      addresses:\n      - {port.address}\n      routes:\n"
        f"      - to: {port.to}\n        via: {port.gateway}\n        on-link: true"
        for port in ports
    ]
    return {"netplan.yaml": "\n".join(lines) + "\n"}


def _blocks(ports: list[_Port]) -> list[str]:
    """Return the blocks of all planes; each ends in a blackhole, so that no default route takes its packets."""
    return list(dict.fromkeys(port.block for port in ports))


def _networkd(ports: list[_Port], options: ExportOptions) -> dict[str, str]:
    own = "".join(f"Address={port.place.address}/128\nAddress={port.place.identity}/128\n" for port in ports)
    last = "".join(
        f"\n[Route]\nDestination={block}\nType=blackhole\nMetric={LAST_METRIC}\n" for block in _blocks(ports)
    )
    files = {"lo.network": f"[Match]\nName=lo\n\n[Network]\nKeepConfiguration=yes\n{own}{last}"}
    for port in ports:
        name = port.place.interface
        files[f"{name}.link"] = (
            f"[Match]\nOriginalName={name}\n\n[Link]\nMACAddress={port.place.mac}\nMTUBytes={options.mtu}\n"
        )
        files[f"{name}.network"] = (
            f"[Match]\nName={name}\n\n"
            "[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nDHCP=no\nLLDP=yes\nEmitLLDP=yes\n\n"
            f"[Address]\nAddress={port.address}\nDuplicateAddressDetection=none\n\n"
            f"[Route]\nDestination={port.to}\nGateway={port.gateway}\nGatewayOnLink=yes\n"
        )
    return files


@lru_cache(maxsize=4)  # most machines use the same port names
def _queues(devices: tuple[str, ...]) -> str:
    lines = []
    for device in devices:
        lines.append(f"qdisc add dev {device} root handle 1: prio bands 2 priomap {' '.join(['1'] * 16)}")
        lines += filters(device, Dscp(), {CONTROL: "1:1"})
    return "\n".join(lines) + "\n"


def _map(plan: UsidPlan, host: int, nics: range, ports: list[_Port]) -> dict[str, Any]:
    name, gpus = plan.topology.name, plan.topology.gpus_per_nic
    return {
        "host": plan.topology.host_name(host),
        "gpus": [{"gpu": gpu, "nic": name(nics[gpu // gpus])} for gpu in range(len(nics) * gpus)],
        "nics": [{"nic": name(nic), "planes": [port.place for port in ports if port.nic == nic]} for nic in nics],
    }


def endpoint(plan: UsidPlan, carriers: Carriers, nic: int, trimming: bool) -> dict[str, Any]:
    """Return the description of a NIC for its endpoint, as `openmrc.live.host.nic_file.NicFile` reads it."""
    topology, planes = plan.topology, range(len(plan.planes))
    rates = [round(plane.host_gbps * 1e9) for plane in topology.fabric.planes_one_by_one()]
    slowest, buffers = min(rates), topology.link_buffer[topology.link_buffer > 0]
    buffer = min(int(buffers.min(initial=DEFAULT_BUFFER)), DEFAULT_BUFFER)
    one_way = max(int(topology.delays(topology.longest_path(shape)).sum()) for shape in topology.planes)
    return {
        "name": topology.name(nic),
        "planes": [plan.nic_address(plane, nic) for plane in planes],
        "carriers": [carriers.of(plane, nic) for plane in planes],
        "link_gbps": sum(rates) / 1e9,
        "base_rtt_us": PACKET * 8e6 / slowest + _HOST_US + us_from_ps(2 * one_way),
        "target_delay_us": TARGET_SHARE * queue_bytes(buffer) * 8e6 / slowest,
        "trimming": trimming,
    }


def warnings(plan: UsidPlan, options: ExportOptions) -> list[str]:
    """Return the steps left to the operator."""
    notes = [f"ports are called as --interface says ({options.interface}); give the names that your machines have"]
    if plan.topology.nics > MOST_PAIRED:
        notes.append(f"no MRC_NIC files: each would name {plan.topology.nics - 1} NICs; written up to {MOST_PAIRED}")
    if not all(sids.is_unique for sids in plan.planes):
        notes.append("paths leave no room for what tells NICs apart: several NICs answer to one outer address")
    return notes
