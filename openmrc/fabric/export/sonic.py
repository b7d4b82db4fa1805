"""SONiC: one CONFIG_DB file a switch, for `config load` on a switch that has its factory configuration.

Where each table comes from (sonic-net, `sonic-yang-models` on master in 2026 unless said):
  DEVICE_METADATA       sonic-device_metadata.yang; orchagent gives every router interface this `mac`
  MGMT_*, NTP*, FEATURE sonic-mgmt_interface, sonic-mgmt_port, sonic-ntp, sonic-feature; routes and SIDs are set by the
                        `bgp` container (bgpcfgd, staticd), LLDP by `lldp`
  PORT, BREAKOUT_CFG    sonic-port.yang, sonic-breakout_cfg.yang; lanes are numbered in the order of the cages from 1
  INTERFACE             sonic-interface.yang; `ipv6_use_link_local_only`: one fe80:: prefix on several ports is refused
                        by orchagent (`IntfsOrch::setIntf`), the address of the kernel, made from the MAC, is not
  NEIGH                 sonic-neigh.yang; only behind ports with a uA, which waits for its neighbour (`Srv6Orch`); the
                        hosts' export gives NICs these MACs. All else is found by neighbour discovery
  SRV6_MY_LOCATORS,     sonic-srv6.yang and the HLD "Static Configuration of SRv6": locators before SIDs, a uN inside
  SRV6_MY_SIDS          its locator, `decap_dscp_mode` on every SID
  STATIC_ROUTE          sonic-static-route.yang, bgpcfgd
  DSCP_TO_TC_MAP, TC_TO_QUEUE_MAP, TC_TO_DSCP_MAP, PORT_QOS_MAP, SCHEDULER, WRED_PROFILE, QUEUE
                        the YANG models of these names; classes as in `classes`
  BUFFER_*, SWITCH_TRIMMING
                        sonic-buffer-*.yang, sonic-trimming.yang, and the sample of asymmetric DSCP in the HLD "SONiC
                        Packet Trimming", section 2.6.4

Values are strings, as in the database.
"""

import json
from functools import lru_cache

from openmrc.fabric.export.cages import sonic_port
from openmrc.fabric.export.frr import locator_name
from openmrc.fabric.export.options import (
    CONTROL,
    DATA,
    DATA_SHARE,
    OTHER,
    OTHER_SHARE,
    QUEUE,
    TRIMMED_HERE,
    class_of,
    trim_size,
)
from openmrc.fabric.export.view import LAST_DISTANCE, PortLayout, PortLook, SwitchView, port_names
from openmrc.fabric.model.port_settings import Dscp
from openmrc.fabric.model.topology import LinkTier

Row = dict[str, str]
_TRIM_LEAST = 128  # bytes: the HLD's sample
_POOL = "egress_lossy_pool"
DECAPSULATION = {"decap_vrf": "default", "decap_dscp_mode": "uniform"}
_DYNAMIC_TH = "3"  # as the HLD's sample: eight times what is free


def port_name(port: PortLook) -> str:
    return port.name or sonic_port(port.slot)


def emit(switch: SwitchView) -> dict[str, str]:
    heads = _port_heads(switch.layout, switch.options.mtu)
    own = {name: [_row(key, fields) for key, fields in rows.items()] for name, rows in _segments(switch).items()}
    parts = [
        _table("DEVICE_METADATA", [_row("localhost", _metadata(switch))]),
        *_management(switch),
        _table("PORT", [f'{head}"description": "{peer}"}}' for head, peer in zip(heads, switch.peers, strict=True)]),
        *_of_layout(switch.layout),
        *(_table(name, rows) for name, rows in own.items() if rows),
        _table("STATIC_ROUTE", _routes(switch)),
    ]
    return {"json": "{\n" + ",\n".join(parts) + "\n}\n"}


def _table(name: str, rows: list[str]) -> str:
    return f'"{name}": {{\n  ' + ",\n  ".join(rows) + "\n}"


def _row(key: str, fields: Row) -> str:
    return f'"{key}": {json.dumps(fields)}'


def _metadata(switch: SwitchView) -> Row:
    options = switch.options
    known = {"hwsku": options.hwsku, "platform": options.platform}
    return {
        "hostname": switch.name,
        "mac": switch.mac,
        "type": "LeafRouter" if switch.layout.has_hosts else "SpineRouter",
        **{key: value for key, value in known.items() if value},
    }


def _management(switch: SwitchView) -> list[str]:
    parts = [_table("FEATURE", [_row("bgp", {"state": "enabled"}), _row("lldp", {"state": "enabled"})])]
    if switch.options.ntp:
        parts.append(_table("NTP_SERVER", [_row(server, {"resolve_as": server}) for server in switch.options.ntp]))
    if found := switch.management():
        parts.append(_table("MGMT_PORT", [_row("eth0", {"alias": "eth0", "admin_status": "up"})]))
        parts.append(_table("MGMT_INTERFACE", [_row(f"eth0|{found[0]}", {"gwaddr": found[1]})]))
    return parts


def _routes(switch: SwitchView) -> list[str]:
    names = port_names(switch.layout, port_name)
    # As `route_row`, but text at once: a large fabric has millions.
    routes = [
        f'"default|{prefix}": {{"nexthop": "{next_hop}", "ifname": "{names[port]}", '
        '"distance": "0", "nexthop-vrf": "default", "blackhole": "false"}'
        for prefix, next_hop, port in switch.routes
    ]
    return [*routes, _row(f"default|{switch.block}", {"blackhole": "true", "distance": str(LAST_DISTANCE)})]


def route_row(ways: Row) -> Row:
    """Return the row of a route; `ways` has `nexthop` and `ifname`."""
    return {**ways, "distance": "0", "nexthop-vrf": "default", "blackhole": "false"}


def locator_row(prefix: str) -> Row:
    lengths = {"block_len": "32", "node_len": "16", "func_len": "16", "arg_len": "0"}
    return {"prefix": prefix.removesuffix("/48"), **lengths, "vrf": "default"}


def _segments(switch: SwitchView) -> dict[str, dict[str, Row]]:
    """Return locators, SIDs, and the neighbours that uAs require."""
    names = port_names(switch.layout, port_name)
    locators, sids, neighbours = {}, {}, {}
    for index, prefix in enumerate(switch.own):
        locators[locator_name(index)] = locator_row(prefix)
        sids[f"{locator_name(index)}|{prefix}"] = {"action": "uN", **DECAPSULATION}
    for prefix, port in switch.adjacencies:
        device, peer = names[port], switch.peer_addresses[port]
        sids[f"{locator_name(0)}|{prefix}"] = {"action": "uA", **DECAPSULATION, "interface": device, "adj": peer}
        neighbours[f"{device}|{peer}"] = {"neigh": switch.peer_mac(port), "family": "IPv6"}
    return {"NEIGH": neighbours, "SRV6_MY_LOCATORS": locators, "SRV6_MY_SIDS": sids}


@lru_cache(maxsize=64)
def _port_heads(layout: PortLayout, mtu: int) -> list[str]:
    """Return each port's row of PORT up to its description."""
    heads = []
    for port in layout.ports:
        slot = port.slot
        if port.name:  # of a switch that exists: lanes are known to its platform
            own = {"speed": str(slot.speed * 1000), "fec": "rs" if slot.fec else "none", "mtu": str(mtu)}
            heads.append(_row(port.name, {**own, "admin_status": "up"})[:-1] + ", ")
            continue
        lanes = ",".join(str(slot.first_lane + lane + 1) for lane in range(slot.lanes))
        fields = {
            "lanes": lanes, "alias": f"etp{slot.cage + 1}" + ("abcdefgh"[slot.part] if slot.parts > 1 else ""),
            "index": str(slot.cage + 1), "speed": str(slot.speed * 1000), "fec": "rs" if slot.fec else "none",
            "mtu": str(mtu), "admin_status": "up",
        }  # fmt: skip
        if slot.parts > 1:
            fields["subport"] = str(slot.part + 1)
        heads.append(_row(port_name(port), fields)[:-1] + ", ")
    return heads


@lru_cache(maxsize=64)
def _of_layout(layout: PortLayout) -> tuple[str, ...]:
    """Return the tables that all switches of a tier share."""
    dscp = layout.ports[0].settings.dscp
    names = port_names(layout, port_name)
    tables = {
        "BREAKOUT_CFG": _breakouts(layout),
        "INTERFACE": {key: row for port in layout.ports for key, row in _interface(port)},
        "DSCP_TO_TC_MAP": {"MRC": {str(each): str(class_of(dscp).get(each, OTHER)) for each in range(64)}},
        "TC_TO_QUEUE_MAP": {"MRC": {str(tc): str(queue) for tc, queue in QUEUE.items()}},
        **_trimming(layout, dscp),
        "PORT_QOS_MAP": {names[port.number]: _maps(layout, port) for port in layout.ports},
        "SCHEDULER": {
            "MRC_CONTROL": {"type": "STRICT"},
            "MRC_DATA": {"type": "DWRR", "weight": str(DATA_SHARE)},
            "MRC_OTHER": {"type": "DWRR", "weight": str(OTHER_SHARE)},
        },
        "WRED_PROFILE": _marks(layout),
        "QUEUE": _queues(layout),
    }
    return tuple(
        _table(name, [_row(key, fields) for key, fields in rows.items()]) for name, rows in tables.items() if rows
    )


def _interface(port: PortLook) -> list[tuple[str, Row]]:
    """Return the rows of a port: its own address, or the one that the kernel makes from its MAC."""
    if port.is_link_local:
        return [(port_name(port), {"ipv6_use_link_local_only": "enable"})]
    return [(port_name(port), {}), (f"{port_name(port)}|{port.address}", {})]


def _breakouts(layout: PortLayout) -> dict[str, Row]:
    firsts = (port.slot for port in layout.ports if port.slot.part == 0 and not port.name)
    return {sonic_port(slot): {"brkout_mode": f"{slot.parts}x{slot.speed}G"} for slot in firsts}


def _maps(layout: PortLayout, port: PortLook) -> Row:
    maps = {"dscp_to_tc_map": "MRC", "tc_to_queue_map": "MRC"}
    if layout.trimming and layout.has_hosts:
        maps["tc_to_dscp_map"] = "MRC_LAST_HOP" if port.tier == LinkTier.HOST else "MRC_FABRIC"
    return maps


def _trimming(layout: PortLayout, dscp: Dscp) -> dict[str, dict[str, Row]]:
    """Return the trimming tables; towards hosts, the DSCP of a trimmed packet depends on its port."""
    if not layout.trimming:
        return {}
    trimming = {"size": str(trim_size(_TRIM_LEAST, layout.ports[0].settings.keep))}
    tables: dict[str, dict[str, Row]] = {}
    if layout.has_hosts:
        trimming |= {"dscp_value": "from-tc", "tc_value": str(TRIMMED_HERE)}
        last, before = str(dscp.trimmed_last_hop), str(dscp.trimmed)
        tables["TC_TO_DSCP_MAP"] = {
            "MRC_LAST_HOP": {str(TRIMMED_HERE): last},
            "MRC_FABRIC": {str(TRIMMED_HERE): before},
        }
    else:
        trimming["dscp_value"] = str(dscp.trimmed)
    trimming["queue_index"] = str(QUEUE[TRIMMED_HERE])
    profile = {"pool": _POOL, "size": "0", "dynamic_th": _DYNAMIC_TH, "packet_discard_action": "trim"}
    return {
        **tables,
        "SWITCH_TRIMMING": {"GLOBAL": trimming},
        "BUFFER_POOL": {_POOL: {"mode": "dynamic", "type": "egress"}},
        "BUFFER_PROFILE": {"MRC_TRIM": profile},
        "BUFFER_QUEUE": {f"{port_name(port)}|{QUEUE[DATA]}": {"profile": "MRC_TRIM"} for port in layout.ports},
    }


def _profile_name(port: PortLook) -> str:
    return f"MRC_{port.settings.mark_low}_{port.settings.mark_high}"


def _marks(layout: PortLayout) -> dict[str, Row]:
    """Return a profile for each pair of thresholds: ECN for all classes that can be marked, no early drops."""
    found = {}
    for port in layout.ports:
        if port.settings.mark_high:
            low, high = str(port.settings.mark_low), str(port.settings.mark_high)
            found[_profile_name(port)] = {
                "ecn": "ecn_all",
                "wred_green_enable": "true",
                "green_min_threshold": low,
                "green_max_threshold": high,
                "green_drop_probability": "100",
            }
    return found


def _queues(layout: PortLayout) -> dict[str, Row]:
    found = {}
    for port in layout.ports:
        name = port_name(port)
        found[f"{name}|{QUEUE[OTHER]}"] = {"scheduler": "MRC_OTHER"}
        found[f"{name}|{QUEUE[DATA]}"] = {"scheduler": "MRC_DATA"}
        if port.settings.mark_high:
            found[f"{name}|{QUEUE[DATA]}"]["wred_profile"] = _profile_name(port)
        found[f"{name}|{QUEUE[CONTROL]}"] = {"scheduler": "MRC_CONTROL"}
    return found


def warnings(switch: SwitchView) -> list[str]:
    """Return the settings that a SONiC may silently ignore."""
    notes = [
        "SRV6_MY_SIDS needs a release with the static SRv6 tables (202505 and later); uA needs a later YANG model",
        "PORT lanes are numbered in the order of the cages; replace them by those of the platform's port_config.ini",
    ]
    if not switch.options.hwsku:
        notes.append("DEVICE_METADATA has no hwsku and platform; load the file on top of the factory configuration")
    if switch.options.trimming:
        notes += [
            "trimming: SONiC silently ignores it if STATE_DB SWITCH_CAPABILITY|switch says SWITCH_TRIMMING_CAPABLE "
            "false; DSCP by class needs FROM_TC in PACKET_TRIMMING_DSCP_RESOLUTION_MODE"
        ]
    return notes
