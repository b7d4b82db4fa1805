"""Hosts: everything a machine needs to send on every plane.

  .netplan.yaml          MACs, MTU, addresses and routes (netplan reference: ethernets, `macaddress`, `link-local`, routes
                         with `on-link`), or the same for systemd-networkd:
  .PORT.link, .PORT.network
                         systemd.link(5), systemd.network(5); networkd sends LLDP too, which the check of cables reads
  .sysctl                ip-sysctl and seg6-sysctl of the kernel's documentation
  .tc                    queues of the NIC's own ports (tc-prio(8), tc-u32(8)): control first
  .NIC.json, .env        what openmrc endpoints read (`openmrc.apps.nic_file`): `MRC_NIC` names the first file
  .map.json              GPU to NIC to plane: port, T0, addresses

A NIC answers to its carriers' last words (`UsidPlan.nic_address`) and to its identity, on the loopback interface: the
outer destination of an arriving packet is the former. Carriers leave by the route of their plane's block. A tunnel's
end (RFC 6040) may lose the DSCP mark of the outer header: endpoints that read marks have to read the outer one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from openmrc.fabric.export.addresses import link_local, mac
from openmrc.fabric.export.classes import CONTROL
from openmrc.fabric.export.kernel import filters
from openmrc.fabric.export.options import Options
from openmrc.fabric.paths import choices, path
from openmrc.fabric.port_settings import DEFAULT_BUFFER, Dscp, queue_bytes
from openmrc.fabric.usid import UsidPlan, block_text

MOST_PAIRED = 1024  # NICs; each file of an endpoint names every other NIC
CONFIGURATION = "/etc/openmrc"  # where .NIC.json files go
_SYSCTLS = (
    "net.ipv6.conf.all.seg6_enabled = 1",
    "net.ipv6.conf.default.seg6_enabled = 1",
    "net.core.rmem_max = 67108864",  # bytes; socket buffers of the endpoint
    "net.core.wmem_max = 67108864",
)
_PACKET = 4096 + 150  # bytes of the longest packet with its headers
_HOST_US = 10.0  # of a round trip, in both hosts; an assumption, to be replaced by a measurement
_TARGET_SHARE = 0.5  # of the fabric's queues, so that congestion control keeps below their marks


def emit_all(plan: UsidPlan, options: Options, hosts: Sequence[int] | None = None) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of all hosts, or of some."""
    topology = plan.topology
    for host in hosts if hosts is not None else range(topology.nics // topology.nics_per_host):
        for ending, text in emit(plan, host, options).items():
            yield f"h{host}.{ending}", text


def emit(plan: UsidPlan, host: int, options: Options) -> dict[str, str]:
    """Return the files of one host, by ending."""
    topology = plan.topology
    nics = range(host * topology.nics_per_host, (host + 1) * topology.nics_per_host)
    ports = [(nic, plane) for nic in nics for plane in range(len(plan.planes))]
    files = (
        _netplan(plan, host, ports, options)
        if options.host_format == "netplan"
        else _networkd(plan, host, ports, options)
    )
    files["sysctl"] = "\n".join(_SYSCTLS) + "\n"
    files["tc"] = _queues([_port(plan, host, nic, plane, options) for nic, plane in ports])
    files["map.json"] = _json(_map(plan, host, list(nics), options))
    if topology.nics <= MOST_PAIRED:
        for nic in nics:
            files[f"{nic - nics[0]}.nic.json"] = _json(endpoint(plan, nic, options))
        files["env"] = f"MRC_NIC={CONFIGURATION}/h{host}.0.nic.json\n"
    return files


def _json(what: Any) -> str:
    return json.dumps(what, indent=2) + "\n"


def _port(plan: UsidPlan, host: int, nic: int, plane: int, options: Options) -> str:
    return options.interface_of(host, nic - host * plan.topology.nics_per_host, plane)


def _gateway(plan: UsidPlan, nic: int, plane: int) -> str:
    shape = plan.planes[plane].shape
    return link_local(plan.topology, plane, shape.first_t0 + shape.t0_of(nic))


def _own(plan: UsidPlan, nic: int, plane: int) -> list[str]:
    return [f"{plan.nic_address(plane, nic)}/128", f"{plan.identity(plane, nic)}/128"]


def _netplan(plan: UsidPlan, host: int, ports: list[tuple[int, int]], options: Options) -> dict[str, str]:
    ethernets: dict[str, Any] = {"lo": {"addresses": [each for port in ports for each in _own(plan, *port)]}}
    for nic, plane in ports:
        ethernets[_port(plan, host, nic, plane, options)] = {
            "macaddress": mac(plan.topology, plane, nic),
            "mtu": options.mtu,
            "dhcp4": False,
            "dhcp6": False,
            "accept-ra": False,
            "link-local": [],
            "addresses": [f"{link_local(plan.topology, plane, nic)}/64"],
            "routes": [
                {"to": block_text(plan.planes[plane].block), "via": _gateway(plan, nic, plane), "on-link": True}
            ],
        }
    network = {"network": {"version": 2, "renderer": "networkd", "ethernets": ethernets}}
    return {"netplan.yaml": yaml.safe_dump(network, sort_keys=False, width=120)}


def _networkd(plan: UsidPlan, host: int, ports: list[tuple[int, int]], options: Options) -> dict[str, str]:
    files = {"lo.network": "[Match]\nName=lo\n\n[Network]\nKeepConfiguration=yes\n"}
    for nic, plane in ports:
        files["lo.network"] += "".join(f"Address={each}\n" for each in _own(plan, nic, plane))
        device = _port(plan, host, nic, plane, options)
        files[f"{device}.link"] = (
            f"[Match]\nOriginalName={device}\n\n"
            f"[Link]\nMACAddress={mac(plan.topology, plane, nic)}\nMTUBytes={options.mtu}\n"
        )
        files[f"{device}.network"] = (
            f"[Match]\nName={device}\n\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nDHCP=no\nLLDP=yes\nEmitLLDP=yes\n\n"
            f"[Address]\nAddress={link_local(plan.topology, plane, nic)}/64\nDuplicateAddressDetection=none\n\n"
            f"[Route]\nDestination={block_text(plan.planes[plane].block)}\nGateway={_gateway(plan, nic, plane)}\nGatewayOnLink=yes\n"
        )
    return files


def _queues(devices: list[str]) -> str:
    lines = []
    for device in devices:
        lines.append(f"qdisc add dev {device} root handle 1: prio bands 2 priomap {' '.join(['1'] * 16)}")
        lines += filters(device, Dscp(), {CONTROL: "1:1"})
    return "\n".join(lines) + "\n"


def _map(plan: UsidPlan, host: int, nics: list[int], options: Options) -> dict[str, Any]:
    topology = plan.topology
    return {
        "host": f"h{host}",
        "gpus": [
            {"gpu": gpu, "nic": topology.name(nics[0] + gpu // topology.gpus_per_nic)}
            for gpu in range(len(nics) * topology.gpus_per_nic)
        ],
        "nics": [{"nic": topology.name(nic), "planes": [_plane_of(plan, host, nic, plane, options) for plane in range(len(plan.planes))]} for nic in nics],
    }  # fmt: skip


def _plane_of(plan: UsidPlan, host: int, nic: int, plane: int, options: Options) -> dict[str, Any]:
    shape = plan.planes[plane].shape
    return {
        "plane": plane,
        "interface": _port(plan, host, nic, plane, options),
        "mac": mac(plan.topology, plane, nic),
        "address": plan.nic_address(plane, nic),
        "identity": plan.identity(plane, nic),
        "t0": plan.topology.name(shape.first_t0 + shape.t0_of(nic)),
        "t0_port": shape.t0_port_of(nic),
    }


def endpoint(plan: UsidPlan, nic: int, options: Options) -> dict[str, Any]:
    """Return what an endpoint must know of its NIC, as `openmrc.apps.nic_file.NicFile` reads it."""
    topology, planes = plan.topology, range(len(plan.planes))
    rates = [round(plane.host_gbps * 1e9) for plane in topology.fabric.planes_one_by_one()]
    slowest, buffer = (
        min(rates),
        min(int(topology.link_buffer[topology.link_buffer > 0].min(initial=DEFAULT_BUFFER)), DEFAULT_BUFFER),
    )
    return {
        "name": topology.name(nic),
        "planes": [plan.nic_address(plane, nic) for plane in planes],
        "carriers": [_carriers(plan, nic, plane) for plane in planes],
        "link_gbps": sum(rates) / 1e9,
        "base_rtt_us": _PACKET * 8e6 / slowest + _HOST_US,
        "target_delay_us": _TARGET_SHARE * queue_bytes(buffer) * 8e6 / slowest,
        "trimming": options.trimming,
    }


def _carriers(plan: UsidPlan, nic: int, plane: int) -> dict[str, list[str]]:
    """Return the addresses that lead to every other NIC, one a path."""
    shape = plan.topology.planes[plane]
    others = (other for other in range(plan.topology.nics) if other != nic)
    return {
        plan.nic_address(plane, other): [path(plan, nic, other, way).address for way in choices(shape, nic, other)]
        for other in others
    }


def warnings(plan: UsidPlan, options: Options) -> list[str]:
    """Say what is left to do."""
    told = [f"ports are called as --interface says ({options.interface}); give the names that your machines have"]
    if plan.topology.nics > MOST_PAIRED:
        told.append(
            f"no MRC_NIC files: each would name {plan.topology.nics - 1} other NICs; they are written up to {MOST_PAIRED}"
        )
    if not all(sids.is_unique for sids in plan.planes):
        told.append("paths leave no room for what tells NICs apart: several NICs answer to one outer address")
    return told
