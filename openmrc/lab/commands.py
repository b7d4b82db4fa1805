"""Lines for `ip -batch` and `tc -batch` that build a lab from its plan, one namespace at a time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from openmrc.fabric.addressing.usid import block_text, identity
from openmrc.fabric.export.kernel import OWN, blackhole, links, sysctls
from openmrc.fabric.export.linux import batch
from openmrc.fabric.export.view import SwitchView, linux_port, port_names
from openmrc.fabric.model.port_settings import PortSettings, switch_port
from openmrc.lab.layout import GATEWAY, MANAGEMENT, MANAGEMENT_BITS, MTU, CableEnd, Lab
from openmrc.lab.namespaces import namespace
from openmrc.lab.port import WIRE_OVERHEAD

TUNNEL_MTU = MTU - 60  # a tunnelled packet has an outer header of 40 bytes, slightly more when traced
_CONTROL_CLASS, _DATA_CLASS = "1:10", "1:20"  # as in bpf/port.bpf.c
CONTROL_LEAF, DATA_LEAF = "10:", "20:"  # the queues of the two classes
_LEAST_BURST = 16_000  # bytes; two packets
_BURST_US = 100
_NIC_QUEUE = 1000  # packets; sockets wait before it is full, because it is longer than their buffers
_FIRST_INDEX = 1000  # of a cable's end; those that the kernel gives count from 1
_SWITCH_QUEUE = 4  # buffers: the program drops at one of data and two of control, unless the machine is late

SYSCTLS = {
    "net/ipv6/conf/all/forwarding": "1",
    "net/ipv6/conf/all/seg6_enabled": "1",
    "net/ipv6/conf/default/seg6_enabled": "1",
    "net/ipv6/conf/default/addr_gen_mode": "1",  # no address of their own, so no neighbour discovery on the cables
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/ipv6/fib_multipath_hash_policy": "1",  # tunnelled connections: by addresses and ports
}


def cables(lab: Lab) -> list[str]:
    """Return the lines that create every cable, to run outside the namespaces.

    No two ends have the same index: an interface whose peer has its own index is no virtual one to the kernel, which
    then announces a lost carrier up to a second late.
    """
    return [
        f"link add {_end(lab, cable.lower, _FIRST_INDEX + 2 * number)} "
        f"type veth peer {_end(lab, cable.upper, _FIRST_INDEX + 2 * number + 1)}"
        for number, cable in enumerate(lab.cables)
    ]


def _end(lab: Lab, end: CableEnd, index: int) -> str:
    return f"name {end.interface} netns {namespace(lab.name, end.node)} index {index} mtu {MTU} address {end.mac}"


def management(lab: Lab) -> list[str]:
    """Return the lines that connect all NICs to the management network, to run outside the namespaces."""
    there = namespace(lab.name, MANAGEMENT)
    return [
        f"link add name {MANAGEMENT} netns {namespace(lab.name, node)} type veth peer name v{nic} netns {there}"
        for nic, node in enumerate(lab.nics())
    ]


def of_management(lab: Lab) -> list[str]:
    """Return the lines for the namespace of the management network's bridge."""
    lines = ["link add name br type bridge", "link set dev br up"]
    return lines + [f"link set dev v{nic} master br up" for nic in range(lab.topology.nics)]


def of_nic(lab: Lab, nic: int, peers: dict[str, str]) -> list[str]:
    """Return the lines for a NIC's namespace; `peers` are the MACs at the other ends of its ports."""
    address = f"{lab.management(nic)}/{MANAGEMENT_BITS}"
    lines = ["link set dev lo up", f"link set dev {MANAGEMENT} up", f"address add {address} dev {MANAGEMENT}"]
    for plane, sids in enumerate(lab.plan.planes):
        device = f"p{plane}"
        lines += [
            f"address add {lab.plan.nic_address(plane, nic)}/128 dev lo nodad",
            f"address add {identity(plane, nic)}/128 dev lo nodad",
            f"link set dev {device} up",
            f"neighbor replace {GATEWAY} lladdr {peers[device]} dev {device} nud permanent",
            f"route add {block_text(sids.block)} via {GATEWAY} dev {device}",
            blackhole(block_text(sids.block)),
            f"route add {lab.decapsulating(plane, nic)}/128 encap seg6local action End.DT6 table 255 dev {device}",
        ]
    return lines + list(_tunnels(lab, nic))


def _tunnels(lab: Lab, nic: int) -> Iterator[str]:
    """Return the routes to every other NIC's plain address, over all paths of its plane."""
    for plane in range(len(lab.plan.planes)):
        for other in range(lab.topology.nics):
            if other == nic:
                continue
            hops = " ".join(
                f"nexthop encap seg6 mode encap.red segs {lab.tunnel(nic, other, way)} via {GATEWAY} dev p{plane}"
                for way in lab.ways(plane, nic, other)
            )
            source = identity(plane, nic)
            yield f"route add {identity(plane, other)}/128 src {source} mtu {TUNNEL_MTU} {hops}"


def of_switch(switch: SwitchView) -> list[str]:
    """Return the lines for a switch's namespace: the Linux export's, with counters and neighbours for a lab."""
    return ["link set dev lo up", *_exported(links(switch, linux_port)), *_on_ports(switch), *_unknown(switch)]


def sysctls_of(switch: SwitchView) -> dict[str, str]:
    """Return the export's settings, for when its ports exist."""
    pairs = (line.split(" = ") for line in sysctls(switch.layout, linux_port).splitlines())
    return {key.replace(".", "/"): value for key, value in pairs}


def port_back(switch: SwitchView, device: str) -> list[str]:
    """Return the lines that bring a switch's port back: going down removed its address, neighbour and routes."""
    lines = [f"link set dev {device} up", *_on_ports(switch)]
    return [line for line in lines if f" dev {device} " in f"{line} "]


def _on_ports(switch: SwitchView) -> list[str]:
    """Return the lines of the export's .batch, with pinned neighbours: overload may not lose their discovery."""
    pinned = (
        f"neighbor replace {switch.peer_addresses[port]} lladdr {switch.peer_mac(port)} dev {name} nud permanent"
        for port, name in port_names(switch.layout, linux_port).items()
    )
    return [*pinned, *_exported(batch(switch))]


def _exported(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _unknown(switch: SwitchView) -> list[str]:
    """Count what no entry knows before the export's blackhole ends it.

    Such a packet has no segment list either: plain End drops it and counts an error.
    """
    return [f"route add {switch.block} encap seg6local action End count dev {OWN}"]


def of_qdiscs(ports: Iterable[CableEnd], program: Path) -> list[str]:
    """Return the lines for `tc`: rate, two priority classes, and the pinned BPF program before them.

    The size table (`stab`) takes a packet's length when it is queued, after the program may have trimmed it; without
    one, the class is charged for the length before the program.
    """
    lines, sizes = [], f"stab overhead {WIRE_OVERHEAD} linklayer ethernet"
    for port in ports:
        lines += [
            f"qdisc add dev {port.interface} root handle 1: {sizes} htb default 20",
            *rate_lines("add", port.interface, port.rate),
            *_leaves(port),
            f"qdisc add dev {port.interface} clsact",
            f"filter add dev {port.interface} egress bpf direct-action object-pinned {program} classid 1:{port.link:x}",
        ]
    return lines


def rate_lines(verb: str, device: str, rate: int) -> list[str]:
    """Return the lines that set a port's rate: control first, data second, each up to the full rate."""
    burst = max(_LEAST_BURST, rate * _BURST_US // 8_000_000)
    shared = f"ceil {rate}bit burst {burst} cburst {burst} quantum {MTU + 100}"
    begin = f"class {verb} dev {device}"
    return [
        f"{begin} parent 1: classid 1:1 htb rate {rate}bit {shared}",
        f"{begin} parent 1:1 classid {_CONTROL_CLASS} htb rate {rate // 2}bit {shared} prio 0",
        f"{begin} parent 1:1 classid {_DATA_CLASS} htb rate {rate - rate // 2}bit {shared} prio 1",
    ]


def _leaves(port: CableEnd) -> list[str]:
    queue = f"pfifo limit {_NIC_QUEUE}" if port.is_nic else f"bfifo limit {_SWITCH_QUEUE * port.buffer}"
    return [
        f"qdisc add dev {port.interface} parent {parent} handle {leaf} {queue}"
        for parent, leaf in ((_CONTROL_CLASS, CONTROL_LEAF), (_DATA_CLASS, DATA_LEAF))
    ]


def settings(port: CableEnd, trimming: bool) -> PortSettings:
    """Return the configuration of a healthy port; a NIC's own port has no switch queue."""
    if port.is_nic:
        return PortSettings(rate=port.rate)
    return switch_port(port.rate, port.buffer, port.is_last_hop, trimming)


def ports_by_node(lab: Lab) -> dict[str, list[tuple[CableEnd, str]]]:
    """Return every node's ports, each with the MAC of its peer."""
    found: dict[str, list[tuple[CableEnd, str]]] = defaultdict(list)
    for cable in lab.cables:
        found[cable.lower.node].append((cable.lower, cable.upper.mac))
        found[cable.upper.node].append((cable.upper, cable.lower.mac))
    return found
