"""A fabric as public SRv6 labs configure SONiC: ports in CONFIG_DB, routes and uSIDs in FRR's own file.

Leaves and spines have one uN each, uAs towards all neighbours, routes to each other's uN over global addresses that
repeat in every plane, and several next hops between leaves. Nothing describes a port. One machine a leaf, under a uA.
"""

import json
from pathlib import Path

PLANES, SPINES, LEAVES = 2, 2, 3
_UPLINK, _HOST = 4, 36  # numbers of the first spine's and of the machine's interface are multiples of four


def write_fabric(folder: Path, decapsulating: bool = False) -> None:
    """Write `SWITCH/config_db.json` and `SWITCH/frr.conf`; perhaps with a SID that ends tunnels and a route to it."""
    for plane in range(PLANES):
        for leaf in range(LEAVES):
            ports = {f"Ethernet{_UPLINK * spine}": (_net(spine, leaf), 1) for spine in range(SPINES)}
            machine = f"2001:db8:cccc:{leaf:02x}"
            lines = [f"ipv6 route {_sid(plane, f'1{spine}')} {_net(spine, leaf)}::0" for spine in range(SPINES)]
            lines += [
                f"ipv6 route {_sid(plane, f'2{other}')} {_net(spine, leaf)}::0"
                for other in range(LEAVES)
                for spine in range(SPINES)
                if other != leaf
            ]
            sids = [
                f"{_sid(plane, f'f00{spine}')} locator MAIN behavior uA interface Ethernet{_UPLINK * spine} "
                f"nexthop {_net(spine, leaf)}::0"
                for spine in range(SPINES)
            ]
            sids.append(
                f"{_sid(plane, 'e009')} locator MAIN behavior uA interface Ethernet{_HOST} nexthop {machine}::2"
            )
            if decapsulating:
                lines.append(f"ipv6 route {_sid(plane, 'd001')} {machine}::2")
                sids.append(f"{_sid(plane, 'dfff')} locator MAIN behavior uDT6 vrf default")
            _write(
                folder / f"p{plane}-leaf{leaf:02}",
                _sid(plane, f"2{leaf}"),
                lines,
                sids,
                {name: f"{net}::{end}/127" for name, (net, end) in ports.items()}
                | {f"Ethernet{_HOST}": f"{machine}::1/64"},
                f"02:42:ac:0{plane}:{leaf:02x}:01",
            )
        for spine in range(SPINES):
            _write(
                folder / f"p{plane}-spine{spine:02}",
                _sid(plane, f"1{spine}"),
                [f"ipv6 route {_sid(plane, f'2{leaf}')} {_net(spine, leaf)}::1" for leaf in range(LEAVES)],
                [
                    f"{_sid(plane, f'e00{leaf}')} locator MAIN behavior uA interface Ethernet{_UPLINK * leaf} "
                    f"nexthop {_net(spine, leaf)}::1"
                    for leaf in range(LEAVES)
                ],
                {f"Ethernet{_UPLINK * leaf}": f"{_net(spine, leaf)}::0/127" for leaf in range(LEAVES)},
                f"02:42:ac:1{plane}:{spine:02x}:01",
            )


def _net(spine: int, leaf: int) -> str:
    return f"2001:db8:fab:{spine * 8 + leaf:04x}"


def _sid(plane: int, usid: str) -> str:
    return f"fc00:000{plane}:{usid}::/48"


def _write(folder: Path, own: str, routes: list[str], sids: list[str], addresses: dict[str, str], mac: str) -> None:
    folder.mkdir(parents=True)
    ports = {
        f"Ethernet{4 * port}": {"lanes": str(port), "speed": "40000", "admin_status": "up", "mtu": "9100"}
        for port in range(12)
    }
    interfaces: dict[str, dict[str, str]] = {}
    for name, address in addresses.items():
        interfaces |= {name: {}, f"{name}|{address}": {}}
    metadata = {"localhost": {"mac": mac, "hostname": folder.name, "docker_routing_config_mode": "split"}}
    database = {"DEVICE_METADATA": metadata, "INTERFACE": interfaces, "PORT": ports}
    (folder / "config_db.json").write_text(json.dumps(database, indent=4))
    lines = [f"hostname {folder.name}", "!", *routes, "!", "segment-routing", " srv6", "  static-sids"]
    lines += [f"   sid {own} locator MAIN behavior uN", *(f"   sid {sid}" for sid in sids), "  exit", "  !", " exit"]
    lines += [" !", " srv6", "  locators", "   locator MAIN", f"    prefix {own} block-len 32 node-len 16 func-bits 16"]
    lines += ["    behavior usid", "   exit", "   !", "  exit", "  !", " exit", " !", "exit", "!", "end"]
    (folder / "frr.conf").write_text("\n".join(lines) + "\n")
