"""FRR: addresses, static routes, locators and static SIDs for zebra, staticd and mgmtd.

  .conf          the integrated configuration (FRR user guide: zebra, "Segment-Routing IPv6"; static, "SRv6 Static
                 SIDs"; vtysh). `block-len` is always written: left out, FRR takes 24
  .links, .sysctl, .tc
                 what FRR does not do: the interface `sr0`, without which staticd installs no uN, MACs and MTU, sysctls,
                 queues (`kernel`)
  .batch         uSIDs that the version cannot install, for `ip -6 -batch` (ip-route(8), `linux`)

What the versions know, found by running them: 8.4 has locators and routes but no static SIDs; 10.3 has uN, but
installs the first of several only (parallel links), and no uA; 10.7 has all. A switch with several uSIDs has a locator
for each, since a uN must lie inside its locator.
"""

from __future__ import annotations

from openmrc.fabric.export.kernel import links, queues, sysctls
from openmrc.fabric.export.linux import adjacency, own_route
from openmrc.fabric.export.view import Entry, PortLook, SwitchView, linux_port
from openmrc.fabric.tables import Action


def port_name(port: PortLook) -> str:
    """Name a port."""
    return linux_port(port)


def locator_name(index: int) -> str:
    """Name the locator of a switch's n-th uSID."""
    return "MRC" if index == 0 else f"MRC{index}"


def emit(switch: SwitchView) -> dict[str, str]:
    """Return the files of one switch, by suffix."""
    left = [line for entry in _for_kernel(switch) for line in _kernel_lines(switch, entry)]
    files = {
        "conf": _configuration(switch),
        "links": links(switch, linux_port),
        "sysctl": sysctls(switch.layout, linux_port),
    }
    files["tc"] = queues(switch.layout, linux_port)
    if left:
        files["batch"] = "\n".join([f"# {switch.name}: what FRR {switch.options.frr} does not install", *left]) + "\n"
    return files


def _for_kernel(switch: SwitchView) -> list[Entry]:
    """Return the entries that this version does not install."""
    own = [entry for entry in switch.entries if entry[1] is Action.UN]
    shifting = [entry for entry in switch.entries if entry[1] is Action.UA]
    return {"8.4": [*own, *shifting], "10.3": [*own[1:], *shifting], "10.7": []}[switch.options.frr]


def _kernel_lines(switch: SwitchView, entry: Entry) -> list[str]:
    prefix, action, port = entry
    return [own_route(prefix)] if action is Action.UN else adjacency(switch, prefix, port, f"p{port}")


def _configuration(switch: SwitchView) -> str:
    own, name, address, facing = switch.address, switch.texts.name, switch.texts.address[switch.plane], switch.facing
    lines = [f"frr version {switch.options.frr}", "frr defaults datacenter", f"hostname {switch.name}", "!"]
    lines += [
        f"ipv6 route {prefix} {address[facing[port][0]]} p{port}"
        for prefix, action, port in switch.entries
        if action is Action.ROUTE
    ]
    lines.append("!")
    lines += [
        f"interface p{number}\n description {name[node]} port {port}\n ipv6 address {own}/64\nexit\n!"
        for number, (node, port) in facing.items()
    ]
    return "\n".join([*lines, *_segment_routing(switch), "end"]) + "\n"


def _segment_routing(switch: SwitchView) -> list[str]:
    version, left = switch.options.frr, _for_kernel(switch)
    if version == "8.4":
        return []
    lines = ["segment-routing", " srv6", "  static-sids"]
    lines += [
        f"   sid {_sid(switch, entry)}"
        for entry in switch.entries
        if entry[1] is not Action.ROUTE and entry not in left
    ]
    lines += ["  exit", "  !", " exit", " !", " srv6", "  encapsulation", f"   source-address {switch.loopback}"]
    lines += ["  exit", "  !", "  locators"]
    for index, prefix in enumerate(switch.own):
        lines += [f"   locator {locator_name(index)}", f"    prefix {prefix} block-len 32 node-len 16 func-bits 16"]
        lines += ["    behavior usid", "   exit", "   !"]
    return [*lines, "  exit", "  !", " exit", " !", "exit", "!"]


def _sid(switch: SwitchView, entry: Entry) -> str:
    prefix, action, port = entry
    if action is Action.UN:
        return f"{prefix} locator {locator_name(switch.own.index(prefix))} behavior uN"
    return f"{prefix} locator {locator_name(0)} behavior uA interface p{port} nexthop {switch.peer_address(port)}"


def warnings(switch: SwitchView) -> list[str]:
    """Return the features that this version lacks."""
    version = switch.options.frr
    notes = [f"written for FRR {version}; run the .links file before FRR starts: staticd installs no uN without sr0"]
    if version == "10.3" and len(switch.own) > 1:
        notes.append("FRR 10.3 installs one uN only; the uSIDs of parallel links are in the .batch file")
    if version != "10.7" and any(action is Action.UA for _, action, _ in switch.entries):
        notes.append(f"FRR {version} has no uA; shifting downlinks are in the .batch file")
    if version == "8.4":
        notes.append("FRR 8.4 has no static SIDs; all uSIDs of the switch are in the .batch file")
    if switch.options.trimming:
        notes.append("the kernel's queues do not trim; full buffers drop")
    return notes
