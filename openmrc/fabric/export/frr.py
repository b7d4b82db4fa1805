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

from itertools import chain

from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.kernel import links, queues, sysctls
from openmrc.fabric.export.linux import adjacency, own_route
from openmrc.fabric.export.view import LAST_DISTANCE, Entry, PortName, SwitchView, linux_port, port_names


def locator_name(index: int) -> str:
    """Name the locator of a switch's n-th uSID."""
    return "MRC" if index == 0 else f"MRC{index}"


def emit(switch: SwitchView, name: PortName = linux_port) -> dict[str, str]:
    """Return the files of one switch, by suffix."""
    names = port_names(switch.layout, name)
    files = {
        "conf": _configuration(switch, names),
        "links": links(switch, name),
        "sysctl": sysctls(switch.layout, name),
        "tc": queues(switch.layout, name),
    }
    if left := _kernel_lines(switch, names):
        files["batch"] = "\n".join([f"# {switch.name}: what FRR {switch.options.frr} does not install", *left]) + "\n"
    return files


def _kernel_lines(switch: SwitchView, names: dict[int, str]) -> list[str]:
    """Return the lines for the entries that this version does not install."""
    if switch.options.frr == "10.7":
        return []
    own = switch.own[1:] if switch.options.frr == "10.3" else switch.own
    shifting = (adjacency(switch, prefix, port, names[port]) for prefix, port in switch.adjacencies)
    return [*map(own_route, own), *chain.from_iterable(shifting)]


def _configuration(switch: SwitchView, names: dict[int, str]) -> str:
    lines = [f"frr version {switch.options.frr}", "frr defaults datacenter", f"hostname {switch.name}", "!"]
    lines += [f"ipv6 route {prefix} {next_hop} {names[port]}" for prefix, next_hop, port in switch.routes]
    lines.append(f"ipv6 route {switch.block} blackhole {LAST_DISTANCE}")
    lines.append("!")
    lines += [
        f"interface {names[number]}\n description {peer}\n ipv6 address {own}\nexit\n!"
        for (number, own), peer in zip(switch.port_addresses.items(), switch.peers, strict=True)
    ]
    return "\n".join([*lines, *_segment_routing(switch, names), "end"]) + "\n"


def _segment_routing(switch: SwitchView, names: dict[int, str]) -> list[str]:
    if switch.options.frr == "8.4":
        return []
    only_first = switch.options.frr == "10.3"
    sids = [entry for entry in switch.sids if not only_first or entry[0] == switch.own[0]]  # those that it installs
    lines = ["segment-routing", " srv6", "  static-sids", *(_sid(switch, names, entry) for entry in sids)]
    lines += ["  exit", "  !", " exit", " !", " srv6", "  encapsulation", f"   source-address {switch.loopback}"]
    lines += ["  exit", "  !", "  locators"]
    for index, prefix in enumerate(switch.own):
        lines += [f"   locator {locator_name(index)}", f"    prefix {prefix} block-len 32 node-len 16 func-bits 16"]
        lines += ["    behavior usid", "   exit", "   !"]
    return [*lines, "  exit", "  !", " exit", " !", "exit", "!"]


def _sid(switch: SwitchView, names: dict[int, str], entry: Entry) -> str:
    prefix, action, port = entry
    if action is Action.UN:
        return f"   sid {prefix} locator {locator_name(switch.own.index(prefix))} behavior uN"
    next_hop = switch.peer_addresses[port]
    return f"   sid {prefix} locator {locator_name(0)} behavior uA interface {names[port]} nexthop {next_hop}"


def warnings(switch: SwitchView) -> list[str]:
    """Return the features that this version lacks."""
    version = switch.options.frr
    notes = [f"written for FRR {version}; run the .links file before FRR starts: staticd installs no uN without sr0"]
    if version == "10.3" and len(switch.own) > 1:
        notes.append("FRR 10.3 installs one uN only; the uSIDs of parallel links are in the .batch file")
    if version != "10.7" and switch.adjacencies:
        notes.append(f"FRR {version} has no uA; shifting downlinks are in the .batch file")
    if version == "8.4":
        notes.append("FRR 8.4 has no static SIDs; all uSIDs of the switch are in the .batch file")
    if switch.options.trimming:
        notes.append("the kernel's queues do not trim; full buffers drop")
    return notes
