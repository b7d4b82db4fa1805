"""What takes a port away from the routes of the default VRF, or packets from a port: VRFs, VLANs, bundles, filters.

None of it is planned. A filter counts if it may drop a packet to a uSID, whatever it matches besides the destination.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from openmrc.fabric.readback.dump import Sections

_TC_ACTS = {"drop", "action", "bpf", "police"}  # words of tc filters that do more than choose a class
_SONIC_PORT = re.compile(r"\w+")
_PASSES = ("FORWARD", "ACCEPT", "")
_IPV4 = ("L3", "MIRROR", "CTRLPLANE")  # types of ACL_TABLE that do not drop the fabric's packets
EOS = {  # begins of statements on a port, and what is said of it
    "vrf": "is in VRF", "switchport access": "is in VLAN", "channel-group": "is in channel group",
    "ipv6 access-group": "has the filter", "mac access-group": "has the filter", "traffic-policy": "has the policy",
    "service-policy": "has the policy",
}  # fmt: skip
FRR = {"vrf": "is in VRF"}
NVUE = {"ip vrf": "is in VRF", "bridge domain": "is in bridge", "acl": "has the filter"}


def of_sonic(tables: Sections, touches: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield (port, why it does not forward as planned) of CONFIG_DB."""
    for name, row in tables.get("INTERFACE", {}).items():
        if row.get("vrf_name", "default") != "default":
            yield name, f"is in VRF {row['vrf_name']}"
    for table in ("VLAN_MEMBER", "PORTCHANNEL_MEMBER"):
        for key in tables.get(table, {}):
            group, _, name = key.partition("|")
            yield name, f"is a member of {group}"
    for rule, filtered in sonic_filters(tables, touches):
        for name in _SONIC_PORT.findall(str(filtered.get("ports", filtered.get("ports@", "")))):
            yield name, f"has the filter {rule}, which may drop its packets"


def sonic_filters(tables: Sections, touches: Callable[[str], bool]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rules of ACLs that may drop packets to uSIDs, each with the row of its table."""
    for key, rule in tables.get("ACL_RULE", {}).items():
        table = tables.get("ACL_TABLE", {}).get(key.partition("|")[0], {})
        destination = str(rule.get("DST_IPV6", "::/0"))
        drops = str(rule.get("PACKET_ACTION", "")).upper() not in _PASSES
        is_ipv4 = str(table.get("type", "")).upper() in _IPV4 or "V4" in str(rule.get("IP_TYPE", "")).upper()
        if drops and not is_ipv4 and (destination == "::/0" or touches(destination)):
            yield key.replace("|", " "), table


def of_lines(items: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """Return why a port with these statements does not forward as planned, or an empty string."""
    for item, values in items.items():
        value = values if isinstance(values, str) else " and ".join(values)
        for begin, said in words.items():
            if (item == begin or item.startswith(f"{begin} ")) and value != "no":
                return f"{said} {f'{item.removeprefix(begin)} {value}'.strip()}"
    return ""


def of_kernel(sections: Sections) -> Iterator[tuple[str, str]]:
    """Yield (port, why) of batches for ip and tc: masters (VRFs, bridges, bonds), and filters that drop or redirect."""
    for item, values in sections.get("links", {}).items():
        words = " ".join(values).split(" ")
        if item.startswith("link set dev ") and "master" in words[:-1]:
            yield item.split(" ")[3], f"is a member of {words[words.index('master') + 1]}"
    for item, values in sections.get("tc", {}).items():
        if port := filtered(item, values):
            yield port, f"has the filter {item.partition(f' {port} ')[2]}"


def filtered(item: str, values: Iterable[str]) -> str:
    """Return the port at which a line for tc may drop or redirect a packet, or an empty string."""
    words = item.split(" ")
    acts = _TC_ACTS & {*words, *" ".join(values).split(" ")}
    return words[3] if words[:3] == ["filter", "add", "dev"] and acts else ""


def rules(sections: Sections) -> str:
    """Return why the main table may not be asked, or an empty string: ip rules come before it."""
    found = [item for item in sections.get("batch", {}) if item.startswith("rule add ")]
    return f"an ip rule comes before the routes: {found[0]}" if found else ""


def bonded(sections: Sections) -> Iterator[tuple[str, str]]:
    """Yield (port, why) of NVUE's bonds."""
    for item, values in sections.get("interface", {}).items():
        words = item.split(" ")
        if words[2:] == ["bond", "member"]:
            for name in ",".join(values).split(","):
                yield name, f"is a member of {words[1]}"
