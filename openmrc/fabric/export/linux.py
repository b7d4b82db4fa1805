"""Linux: `ip -batch` files, sysctls and queues.

  .links   once: the interface of the uSIDs; MAC and MTU of the ports (ip-link(8))
  .sysctl  forwarding and segment routing (ip-sysctl, seg6-sysctl of the kernel's documentation)
  .batch   addresses, neighbours and routes (ip-address(8), ip-neighbour(8), ip-route(8)); may be read again, and
           has to be after a port was down: the kernel forgets what stood on it. uSIDs of the switch stay
  .tc      queues, once (`kernel`)

uN is seg6local End with the NEXT-C-SID flavour (RFC 9800; kernel 6.1 and up, iproute2 6.1 and up). A shifting downlink
is End.X towards the NIC's own address, which needs a route and a neighbour of its own: End.X to a link-local address
needs `oif`, which iproute2 6.1 does not know.
"""

from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.kernel import OWN, blackhole, links, queues, sysctls
from openmrc.fabric.export.view import PortName, SwitchView, linux_port, port_names

BLOCK_BITS, USID_BITS = 32, 16
FLAVOUR = f"flavors next-csid lblen {BLOCK_BITS} nflen {USID_BITS} count"  # with counters, for `ip -s route`


def emit(switch: SwitchView, name: PortName = linux_port) -> dict[str, str]:
    """Return the files of one switch, by suffix."""
    return {
        "links": links(switch, name),
        "sysctl": sysctls(switch.layout, name),
        "batch": batch(switch, name),
        "tc": queues(switch.layout, name),
    }


def batch(switch: SwitchView, name: PortName = linux_port) -> str:
    """Return the lines for `ip -6 -batch`."""
    names = port_names(switch.layout, name)
    lines = [f"# {switch.name}: ip -6 -batch THIS_FILE, again after a port was down"]
    lines += [
        f"# {device} to {peer}\naddress replace {address} dev {device} nodad"
        for device, peer, address in zip(names.values(), switch.peers, switch.port_addresses.values(), strict=True)
    ]
    return "\n".join([*lines, *_routes(switch, names), blackhole(switch.block)]) + "\n"


def _routes(switch: SwitchView, names: dict[int, str]) -> list[str]:
    hops = switch.peer_addresses
    return [
        f"route replace {prefix} via {hops[port]} dev {names[port]}"
        if action is Action.ROUTE
        else own_route(prefix)
        if action is Action.UN
        else "\n".join(adjacency(switch, prefix, port, names[port]))
        for prefix, action, port in switch.entries
    ]


def own_route(prefix: str) -> str:
    """Return the line that installs one of the switch's own uSIDs."""
    return f"route replace {prefix} encap seg6local action End {FLAVOUR} dev {OWN}"


def adjacency(switch: SwitchView, prefix: str, port: int, device: str) -> list[str]:
    """Return the lines that install a shifting downlink."""
    there = switch.peer_identity(port)
    return [
        f"route replace {there}/128 dev {device}",
        f"neighbor replace {there} lladdr {switch.peer_mac(port)} dev {device} nud permanent",
        f"route replace {prefix} encap seg6local action End.X nh6 {there} {FLAVOUR} dev {device}",
    ]


def warnings(switch: SwitchView) -> list[str]:
    """Return the requirements and limits of Linux."""
    notes = ["uSIDs need kernel 6.1 and iproute2 6.1 or newer", "a port that was down needs its .batch again"]
    if switch.options.trimming:
        notes.append("the kernel's queues do not trim; full buffers drop")
    return notes
