"""Linux: `ip -batch` files, sysctls, queues, and the routes as netlink attributes.

  .links         once: the interface of the uSIDs; MAC and MTU of the ports (ip-link(8))
  .sysctl        forwarding and segment routing (ip-sysctl, seg6-sysctl of the kernel's documentation)
  .batch         addresses, neighbours and routes (ip-address(8), ip-neighbour(8), ip-route(8)); may be read again, and
                 has to be after a port was down: the kernel forgets what stood on it. uSIDs of the switch stay
  .tc            queues, once (`kernel`)
  .netlink.json  RTM_NEWROUTE descriptions (linux/rtnetlink.h, linux/lwtunnel.h, linux/seg6_local.h)

uN is seg6local End with the NEXT-C-SID flavour (RFC 9800; kernel 6.1 and up, iproute2 6.1 and up). A shifting downlink
is End.X towards the NIC's own address, which needs a route and a neighbour of its own: End.X to a link-local address
needs `oif`, which iproute2 6.1 does not know.
"""

import json

from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.kernel import LAST_METRIC, OWN, blackhole, links, queues, sysctls
from openmrc.fabric.export.view import Entry, PortName, SwitchView, linux_port, port_names

BLOCK_BITS, USID_BITS = 32, 16
FLAVOUR = f"flavors next-csid lblen {BLOCK_BITS} nflen {USID_BITS} count"  # with counters, for `ip -s route`
_NEW_ROUTE = '{"type": "RTM_NEWROUTE", "family": "AF_INET6", "RTA_DST": '
_LWT_SEG6_LOCAL = 7  # LWTUNNEL_ENCAP_SEG6_LOCAL
_END, _END_X = 1, 2  # SEG6_LOCAL_ACTION_END, _END_X
_NEXT_CSID = 1 << 4  # bit of SEG6_LOCAL_FLV_OP_NEXT_CSID
_COUNTERS = ("SEG6_LOCAL_CNT_PACKETS", "SEG6_LOCAL_CNT_BYTES", "SEG6_LOCAL_CNT_ERRORS")
_FLAVOURS = {
    "SEG6_LOCAL_FLV_OPERATION": _NEXT_CSID,
    "SEG6_LOCAL_FLV_LCBLOCK_BITS": BLOCK_BITS,
    "SEG6_LOCAL_FLV_LCNODE_FN_BITS": USID_BITS,
}


def emit(switch: SwitchView, name: PortName = linux_port) -> dict[str, str]:
    """Return the files of one switch, by suffix."""
    return {
        "links": links(switch, name),
        "sysctl": sysctls(switch.layout, name),
        "batch": batch(switch, name),
        "tc": queues(switch.layout, name),
        "netlink.json": netlink(switch, name),
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
    routes = [f"route replace {prefix} via {next_hop} dev {names[port]}" for prefix, next_hop, port in switch.routes]
    sids = (
        own_route(prefix) if action is Action.UN else "\n".join(adjacency(switch, prefix, port, names[port]))
        for prefix, action, port in switch.sids
    )
    return switch.by_usid(routes, sids)


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


def netlink(switch: SwitchView, name: PortName = linux_port) -> str:
    """Return one RTM_NEWROUTE description per line, for software that uses netlink directly."""
    names = port_names(switch.layout, name)
    routes = [
        f'{_NEW_ROUTE}"{prefix[:-3]}", "dst_len": {prefix[-2:]}, "RTA_OIF": "{names[port]}", "RTA_GATEWAY": "{via}"}}'
        for prefix, via, port in switch.routes
    ]
    sids = (_netlink_sid(switch, entry, names) for entry in switch.sids)
    last = (
        f'{_NEW_ROUTE}"{switch.block[:-3]}", "dst_len": {switch.block[-2:]}, "rtm_type": "RTN_BLACKHOLE", '
        f'"RTA_PRIORITY": {LAST_METRIC}}}'
    )
    return "\n".join([*switch.by_usid(routes, sids), last]) + "\n"


def _netlink_sid(switch: SwitchView, entry: Entry, names: dict[int, str]) -> str:
    prefix, action, port = entry
    device = OWN if action is Action.UN else names[port]
    encap: dict[str, object] = {"SEG6_LOCAL_ACTION": _END if action is Action.UN else _END_X}
    if action is Action.UA:
        encap["SEG6_LOCAL_NH6"] = switch.peer_identity(port)
    encap["SEG6_LOCAL_FLAVORS"] = _FLAVOURS
    encap["SEG6_LOCAL_COUNTERS"] = dict.fromkeys(_COUNTERS, 0)
    destination = f'{_NEW_ROUTE}"{prefix[:-3]}", "dst_len": {prefix[-2:]}, "RTA_OIF": "{device}"'
    return f'{destination}, "RTA_ENCAP_TYPE": {_LWT_SEG6_LOCAL}, "RTA_ENCAP": {json.dumps(encap)}}}'


def warnings(switch: SwitchView) -> list[str]:
    """Return the requirements and limits of Linux."""
    notes = ["uSIDs need kernel 6.1 and iproute2 6.1 or newer", "a port that was down needs its .batch again"]
    if switch.options.trimming:
        notes.append("the kernel's queues do not trim; full buffers drop")
    return notes
