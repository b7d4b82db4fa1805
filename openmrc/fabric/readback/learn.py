"""A fabric file from the configurations and dumps of switches that exist.

Ports are joined (`seen_cables`), the regular fabric is found (`seen_shape`), and what is not as the plan would choose
is added; what is irregular becomes a list of nodes and links, what could not be used `Learned.unknown`.
"""

import ipaddress
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from openmrc.base.documents import MOST_DUMP_BYTES, read_text
from openmrc.base.terminal import counted
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Action, Tables, build_tables
from openmrc.fabric.addressing.usid import UsidPlan, block_text, usid_plan, usid_with_room
from openmrc.fabric.cables.lldp import read_neighbours
from openmrc.fabric.export.addresses import mac, port_address
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS
from openmrc.fabric.export.view import SwitchView, Views, port_names
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, FoundDevice, IrregularLink, IrregularNode, Usid
from openmrc.fabric.model.topology import Topology
from openmrc.fabric.readback.folder import files_of
from openmrc.fabric.readback.formats import FORMATS, is_running, read_running
from openmrc.fabric.readback.seen import UPPER_BITS, Prefixes, SeenSwitch, by_prefix, see, usual_address
from openmrc.fabric.readback.seen_cables import End, SeenFabric, join_ports, natural, upper_of, usual_name
from openmrc.fabric.readback.seen_shape import UNKNOWN_GBPS, Formed, IrregularError, form, tiers_of

_SYSTEMS = {"json": "sonic", "conf": "frr", "nvue": "cumulus", "eos": "eos"}
_KERNEL = ("batch", "links", "sysctl", "tc")
_EOS_TEXT = re.compile(r"^(router srv6|ipv6 unicast-routing|transceiver qsfp|! device: )", re.MULTILINE)
_FRR_TEXT = re.compile(r"^(segment-routing|frr version |frr defaults )", re.MULTILINE)
_PREFIX = re.compile(r"[0-9a-fA-F]*:[0-9a-fA-F:]*/48")
_MOST_ENDS = 16  # of routes that do not arrive
_GAP = 1  # a downlink's uSID at a port without a NIC
_Planned = dict[str, set[tuple[str, Action]]]  # prefix and action of the entries of each switch


class Unknown(NamedTuple):
    """Something that could not be used."""

    file: str
    line: int  # from 1; 0: the file as a whole
    what: str


@dataclass
class Learned:
    """A fabric as found, and what is to be said of it."""

    fabric: Fabric
    irregular: str = ""  # why it is a list of nodes and links; empty: it is regular
    doubts: list[str] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)


def learn(folder: Path, name: str | None = None) -> Learned:
    """Read a folder of configurations and dumps; ConfigError if no switch is in it."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: not a folder; expected files SWITCH.ENDING, or folders SWITCH with its files")
    files = files_of(folder)
    switches, target, unknown = _read(files)
    if not switches:
        raise ConfigError(f"{folder}: no file in it is a switch's configuration or dump that can be read")
    seen = join_ports(switches)
    called = name or usual_name(folder.resolve().name) or "learned"
    planned: _Planned = {}
    try:
        fabric, planned = _Regular(seen, form(seen), called, target).fabric()
        learned = Learned(fabric)
    except (IrregularError, ConfigError) as error:
        learned = Learned(_graph(seen, called), str(error))
    learned.doubts = [*seen.doubts, *_unsaid(seen), *(_followed(seen) if learned.irregular else ())]
    learned.unknown = [*unknown, *_unused(planned, seen, files)]
    return learned


def _read(files: dict[str, dict[str, Path]]) -> tuple[dict[str, SeenSwitch], str, list[Unknown]]:
    """Return what each switch's files say, the system of most, and the files that could not be read."""
    switches, unknown = {}, []
    systems: dict[str, int] = defaultdict(int)
    for device, own in sorted(files.items(), key=lambda each: natural(each[0])):
        if usual_name(device) != device:
            unknown += [Unknown(str(path), 0, "no name of a switch before the first dot") for path in own.values()]
            continue
        switch, read = SeenSwitch(device), []
        for ending, path in own.items():
            try:
                read.append(_read_file(switch, ending, path))
            except ConfigError as error:
                unknown.append(Unknown(str(path), 0, str(error).removeprefix(f"{path}: ")))
        if any(switch.entries) or any(system in TARGETS for system in read):
            switches[device] = switch
            for system in read:
                systems[system] += 1
    known = {system: count for system, count in systems.items() if system in TARGETS}
    return switches, max(known, key=lambda each: (known[each], each != "linux"), default="linux"), unknown


def _read_file(switch: SeenSwitch, ending: str, path: Path) -> str:
    """Add a file to what is known of its switch; return its system."""
    text = read_text(path, MOST_DUMP_BYTES)
    system = _SYSTEMS.get(ending, "linux" if ending in _KERNEL else "")
    if text.lstrip().startswith(("{", "[")) and system not in ("cumulus", "eos"):
        if '"lldp' in text.lower() and '"DEVICE_METADATA"' not in text:
            for each in read_neighbours(text, str(path)):
                switch.port(each.interface).neighbours.append(each)
            return "lldp"
        if is_running(text) and ending not in _KERNEL:
            see(switch, "", read_running("linux" if text.lstrip().startswith("[") else "frr", text, str(path)), text)
            return "linux"
        system = system or "sonic"
    elif not system:
        system = _system_of(text)
    if not system:
        raise ConfigError(f"{path}: neither a configuration nor a dump of a known system")
    if ending != "sysctl":  # which says nothing that the others do not
        reader = FORMATS[system].readers[ending if ending in _KERNEL else next(iter(FORMATS[system].readers))]
        see(switch, system, reader(text, str(path)), text)
    return system


def _system_of(text: str) -> str:
    if "nv set " in text:
        return "cumulus"
    if _FRR_TEXT.search(text):
        return "frr"
    return "eos" if _EOS_TEXT.search(text) else ""


class _Regular:
    """Writes down a regular fabric: its uSIDs, and for each device what is not as planned."""

    def __init__(self, seen: SeenFabric, formed: Formed, name: str, target: str) -> None:
        self.seen, self.formed, self.target = seen, formed, target
        self.planned = msgspec.structs.replace(formed.topology.fabric, name=name)
        self.names = dict(enumerate(formed.switches, start=formed.topology.nics))  # of switches, by node
        self._vias: dict[str, set[str]] = {}  # next hops of a switch's routes

    def fabric(self) -> tuple[Fabric, _Planned]:
        """Return the fabric, and what its switches have by its plan; ConfigError if there can be none."""
        topology = self.formed.topology
        room = msgspec.structs.replace(self.planned, usid=usid_with_room(topology))
        numbered = usid_plan(build(room))
        own, downlinks, is_shifting = self._sids(numbered)
        usid = self._layout(own, downlinks, is_shifting)
        plan = usid_plan(build(msgspec.structs.replace(self.planned, usid=usid)))
        views = Views(plan, ExportOptions())
        devices = [self._nic(plan.topology, nic) for nic in range(topology.nics)]
        for node in range(topology.nics, topology.nodes):
            devices.append(self._switch(plan, views.of(node), own[node], downlinks.get(node, ())))
        fabric = msgspec.structs.replace(self.planned, usid=usid, found=tuple(devices))
        planned = self._entries(fabric)
        for node, name in self.names.items():
            devices[node] = msgspec.structs.replace(devices[node], others=self._others(name, planned[name]))
        as_planned = all(each == FoundDevice(name=plan.topology.name(node)) for node, each in enumerate(devices))
        return msgspec.structs.replace(fabric, found=() if as_planned else tuple(devices)), planned

    def _entries(self, fabric: Fabric) -> _Planned:
        views = Views(usid_plan(build(fabric)), ExportOptions())
        return {
            name: {(prefix, action) for prefix, action, _ in views.of(node).entries}
            for node, name in self.names.items()
        }

    def _others(self, name: str, planned: set[tuple[str, Action]]) -> tuple[int, ...]:
        """Return the uSIDs of a switch that no path of the plan uses."""
        known, block = {prefix for prefix, _ in planned}, self.seen.block(name)
        left = {upper_of(each.prefix) for each in self.seen.switches[name].entries if each.prefix not in known}
        return tuple(sorted(upper & 0xFFFF for upper in left if upper >> 16 == block and upper & 0xFFFF))

    def _sids(self, plan: UsidPlan) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]], bool]:
        """Return the uSIDs of every switch by parallel link, of every T0 by port, and whether downlinks shift.

        The plan's entries tell which neighbour's route, out of which port, leads to which link of a switch. Of several
        uSIDs that lead to a NIC, one that the switch itself shifts away is its downlink.
        """
        topology, tables = plan.topology, build_tables(plan)
        out = {node: self._out(node) for node in range(topology.nics, topology.nodes)}
        mine = {node: self._own(node) for node in out}
        at = _owners(tables)
        said: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        shifts = 0
        downlinks: dict[int, dict[int, int]] = defaultdict(dict)
        for switch, block, usid, action, port in zip(*(column.tolist() for column in tables.columns()), strict=True):
            leads = out[switch].get(self.formed.ports.get((switch, port), ""), [])
            if action == Action.UN:
                continue
            if (block, usid) in at:
                target, alias = at[block, usid]
                said[target][alias] += [sid for sid, kind in leads if sid in mine[target] and kind == Action.ROUTE]
            elif leads:
                downlinks[switch][port], kind = next((each for each in leads if each[1] == Action.UA), leads[0])
                shifts += 1 if kind == Action.UA else -1
        own = {node: _by_alias(self.names[node], mine[node], said[node], _widths(plan, node)) for node in out}
        width = {node: topology.planes[int(topology.node_plane[node])].t0_down for node in downlinks}
        by_port = {
            node: tuple(ports.get(port, _GAP) for port in range(width[node])) for node, ports in downlinks.items()
        }
        return own, by_port, shifts > 0

    def _own(self, node: int) -> list[int]:
        entries = self.seen.switches[self.names[node]].entries
        return sorted({upper_of(each.prefix) & 0xFFFF for each in entries if each.action is Action.UN} - {0})

    def _out(self, node: int) -> dict[str, list[tuple[int, Action]]]:
        """Return the uSIDs that lead out of each port of a switch."""
        name = self.names[node]
        block = self.seen.block(name)
        found: dict[str, list[tuple[int, Action]]] = defaultdict(list)
        for each in self.seen.switches[name].entries:
            upper = upper_of(each.prefix)
            if upper >> 16 == block and each.action in (Action.ROUTE, Action.UA):
                found[each.interface].append((upper & 0xFFFF, each.action))
        return found

    def _layout(
        self, own: dict[int, tuple[int, ...]], downlinks: dict[int, tuple[int, ...]], is_shifting: bool
    ) -> Usid:
        """Return the blocks, and first values of the ranges if all uSIDs follow from them."""
        topology = self.formed.topology
        blocks = [self.seen.block(self.names[shape.first_t0]) for shape in topology.planes]
        default = Usid()
        first = int(ipaddress.IPv6Address(default.block + "::")) >> 96
        if any(block <= 0 for block in blocks):
            raise IrregularError("a switch has no uSID of its own, or uSIDs of several blocks")
        is_shared = len(blocks) > 1 and len(set(blocks)) == 1
        texts = tuple(block_text(block).removesuffix("::/32") for block in blocks)
        if not is_shared and blocks != list(range(blocks[0], blocks[0] + len(blocks))):
            named = Usid(blocks=texts)
        else:
            named = default if blocks[0] == first else Usid(block=texts[0])
        named = msgspec.structs.replace(named, downlink="ua" if is_shifting else "route", shared=is_shared)
        shape = topology.planes[0]
        starts = {f"t{tier}": own[node][0] for tier, node in enumerate(shape.firsts) if tier < shape.tiers}
        if shape.first_t0 in downlinks:
            starts["host"] = downlinks[shape.first_t0][0]
        for usid in (named, msgspec.structs.replace(named, **starts)):
            if self._follows(usid, own, downlinks):
                return usid
        return named

    def _follows(self, usid: Usid, own: dict[int, tuple[int, ...]], downlinks: dict[int, tuple[int, ...]]) -> bool:
        try:
            plan = usid_plan(build(msgspec.structs.replace(self.planned, usid=usid)))
        except ConfigError:
            return False
        planned = {node: _planned_sids_of(plan, node) for node in own}
        return all(
            own[node] == sids and _agree(downlinks.get(node, ()), ports) for node, (sids, ports) in planned.items()
        )

    def _nic(self, topology: Topology, nic: int) -> FoundDevice:
        ends = self.formed.nics[nic]
        usual_addresses = [port_address(topology, plane, nic, plane) for plane in range(len(ends))]
        usual_macs = [mac(topology, plane, nic, plane) for plane in range(len(ends))]
        addresses, macs = [], []
        for plane, end in enumerate(ends):
            switch, address = self.seen.switches[end[0]], self.seen.nics[end].address
            addresses.append(_with_length(address, switch.ports[end[1]].addresses) or usual_addresses[plane])
            macs.append(switch.pinned.get((end[1], address)) or usual_macs[plane])
        return FoundDevice(
            name=self.formed.nic_names[nic] or topology.name(nic),
            addresses=() if addresses == usual_addresses else _shortest(addresses),
            macs=() if macs == usual_macs else _shortest(macs),
        )

    def _switch(
        self, plan: UsidPlan, view: SwitchView, own: tuple[int, ...], downlinks: tuple[int, ...]
    ) -> FoundDevice:
        name, topology = self.names[view.node], plan.topology
        seen = self.seen.switches[name]
        last = max(view.layout.by_number)
        ports = [self.formed.ports.get((view.node, number), "") for number in range(last + 1)]
        usual = port_names(view.layout, TARGETS[self.target].port_name)
        addresses = [self._address(seen, port) if port else "" for port in ports]
        macs = [(seen.ports[port].mac if port else "") or seen.mac or view.mac for port in ports]
        as_usual = {port_address(topology, view.plane, view.node, 0), ""}
        planned_own, planned_downlinks = _planned_sids_of(plan, view.node)
        return FoundDevice(
            name=name,
            ports=() if all(usual[number] == ports[number] for number in usual) else tuple(ports),
            addresses=() if set(addresses) <= as_usual else _shortest(addresses),
            macs=() if set(macs) <= {view.mac} else _shortest(macs),
            usids=() if own == planned_own else own,
            downlinks=() if _agree(downlinks, planned_downlinks) else _filled(downlinks, planned_own, own),
        )

    def _address(self, switch: SeenSwitch, port: str) -> str:
        """Return the address of a port that its neighbour's routes name, else the first."""
        known = switch.ports[port].addresses
        far = self.seen.cables.get((switch.name, port))
        if far and far[0] not in self._vias:
            self._vias[far[0]] = {each.via for each in self.seen.switches[far[0]].entries}
        vias = self._vias[far[0]] if far else set()
        return next((each for each in known if each.partition("/")[0] in vias), next(iter(known), ""))


def _owners(tables: Tables) -> dict[tuple[int, int], tuple[int, int]]:
    """Return node and parallel link of each uSID that switches have, by block and uSID."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    count: dict[int, int] = defaultdict(int)
    own = tables.rows(tables.action == Action.UN)
    for block, usid, switch in sorted(zip(own.block.tolist(), own.usid.tolist(), own.switch.tolist(), strict=True)):
        found[block, usid] = switch, count[switch]
        count[switch] += 1
    return found


def _widths(plan: UsidPlan, node: int) -> int:
    return plan.planes[int(plan.topology.node_plane[node])].aliases[int(plan.topology.node_tier[node])]


def _by_alias(name: str, own: list[int], said: dict[int, list[int]], width: int) -> tuple[int, ...]:
    """Put a switch's uSIDs in the order of the parallel links that neighbours use for them."""
    if len(own) < width:
        raise IrregularError(f"{name} has {len(own)} uSIDs for {width} parallel links; each needs its own")
    found: dict[int, int] = {}
    for alias in sorted(said, key=lambda each: len(set(said[each]))):
        left = [sid for sid in sorted(set(said[alias])) if sid not in found.values()]
        if left:
            found[alias] = max(left, key=said[alias].count)
    rest = iter([sid for sid in own if sid not in found.values()])
    return tuple(found[alias] if alias in found else next(rest) for alias in range(width))


def _planned_sids_of(plan: UsidPlan, node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the uSIDs that a plan gives a switch, and those of a T0's downlinks."""
    topology = plan.topology
    tier, index = int(topology.node_tier[node]), int(topology.node_index[node])
    sids = plan.planes[int(topology.node_plane[node])]
    ports = tuple(sids.downlink_sid(index, port) for port in range(sids.shape.t0_down)) if tier == 0 else ()
    return tuple(sids.sid(tier, index, alias) for alias in range(_widths(plan, node))), ports


def _agree(found: Iterable[int], planned: Iterable[int]) -> bool:
    """Whether downlinks are as planned, those without a NIC left out."""
    return all(sid in (_GAP, usual) for sid, usual in zip(found, planned, strict=False))


def _filled(downlinks: tuple[int, ...], *used: tuple[int, ...]) -> tuple[int, ...]:
    """Give ports without a NIC values that nothing else has."""
    free = iter(sid for sid in range(0xFFFF, 0, -1) if sid not in downlinks and not any(sid in each for each in used))
    return tuple(next(free) if sid == _GAP else sid for sid in downlinks)


def _with_length(address: str, of_port: Iterable[str]) -> str:
    """Return a neighbour's address with the prefix length of the port's network; empty if it is in none."""
    if address.startswith("fe80:"):
        return f"{address}/64"
    networks = (ipaddress.IPv6Interface(each).network for each in of_port)
    inside = (each for each in networks if address and ipaddress.IPv6Address(address) in each)
    return next((f"{address}/{network.prefixlen}" for network in inside), "")


def _shortest(values: list[str]) -> tuple[str, ...]:
    """Return one value where all are the same."""
    return (values[0],) if len(set(values)) == 1 else tuple(values)


def _graph(seen: SeenFabric, name: str) -> Fabric:
    """Return the switches and cables as a list, each machine's port a NIC of its own unless it has a name."""
    tier = tiers_of(seen)
    planes = seen.planes()
    nodes = {}
    links = []
    for end, nic in seen.nics.items():
        called = nic.name or f"{end[0]}-{usual_name(end[1])}"
        nodes[called] = IrregularNode(name=called, kind="nic")
        links.append(IrregularLink(a=called, b=end[0], gbps=_gbps(seen, end)))
    for switch in seen.switches:
        number, plane = min(15, tier.get(switch, 0)), planes[switch] % 64
        nodes[switch] = IrregularNode(name=switch, kind="switch", tier=number, plane=plane)
    links += [IrregularLink(a=one[0], b=two[0], gbps=_gbps(seen, one)) for one, two in seen.cables.items() if one < two]
    if not seen.nics or not links:
        raise ConfigError(f"{name}: no port leads to a NIC: no fabric can be made of these files")
    return Fabric(name=name, nodes=tuple(nodes.values()), links=tuple(links))


def _followed(seen: SeenFabric) -> Iterator[str]:
    """Say how many routes to uSIDs of the fabric's blocks there are, and which end before a uN, a uA or a NIC."""
    tables = {name: by_prefix(switch) for name, switch in seen.switches.items()}
    blocks, starts, lost = {seen.block(name) for name in tables}, defaultdict[int, list[str]](list), Counter[str]()
    for name, table in tables.items():
        for (length, sid), found in table.items():
            if length == UPPER_BITS and sid >> 16 in blocks and any(each.action is Action.ROUTE for each in found):
                starts[sid].append(name)
    for sid, names in sorted(starts.items()):
        fates = dict[str, str]()  # by switch; empty: it arrives
        ends = [_fate(seen, tables, name, sid, fates) for name in names]
        lost.update(f"{ipaddress.IPv6Address(sid << 80)}/48 {end}" for end in ends if end)
    routes, count = sum(map(len, starts.values())), f"{lost.total()} do not arrive" if lost else "all arrive"
    yield f"{routes} routes to uSIDs were followed from switch to switch: {count}"
    yield from (f"{end} ({counted(more, 'route', 'routes')})" for end, more in lost.most_common(_MOST_ENDS))
    if len(lost) > _MOST_ENDS:
        yield f"and {len(lost) - _MOST_ENDS} more such ends and loops"


def _fate(seen: SeenFabric, tables: dict[str, Prefixes], here: str, sid: int, fates: dict[str, str]) -> str:
    """Follow a uSID; `fates` has what becomes of it from other switches on, and gets those on its way."""
    passed: list[str] = []
    while here not in fates:
        if here in passed:
            fates[here] = "loops through " + ", ".join(sorted(passed[passed.index(here) :]))
            break
        passed.append(here)
        keys = ((length, sid >> UPPER_BITS - length) for length in range(UPPER_BITS, -1, -1))
        found = next((tables[here][key] for key in keys if key in tables[here]), set())
        entry = next(iter(found)) if len(found) == 1 else None
        end = (here, entry.interface if entry else "")
        if found and {each.action for each in found} == {Action.UN}:
            fates[here] = ""
        elif (UPPER_BITS + 1, sid) in tables[here]:
            fates[here] = f"meets a longer prefix at {here}"
        elif entry is None or entry.action is None:
            fates[here] = f"ends at {here}: " + (entry.other if entry else "two entries" if found else "no entry")
        elif end in seen.nics or (end in seen.cables and entry.action is Action.UA):
            fates[here] = ""
        elif end in seen.cables:
            here = seen.cables[end][0]
        else:
            fates[here] = f"ends at {here}: {entry.interface or entry.via} leads nowhere"
    fates.update(dict.fromkeys(passed, fates[here]))
    return fates[here]


def _gbps(seen: SeenFabric, end: End) -> float:
    return seen.switches[end[0]].ports[end[1]].gbps or UNKNOWN_GBPS


def _unsaid(seen: SeenFabric) -> Iterator[str]:
    ends = [*seen.cables, *seen.nics]
    slow = [end for end in ends if not seen.switches[end[0]].ports[end[1]].gbps]
    if slow:
        yield f"the rate of {len(slow)} of {len(ends)} ports is not in the files; {UNKNOWN_GBPS:g} Gb/s is assumed"


def _unused(planned: _Planned, seen: SeenFabric, files: dict[str, dict[str, Path]]) -> Iterator[Unknown]:
    """Yield the uSIDs and routes of the fabric's blocks that no path of the plan uses."""
    for name, switch in seen.switches.items():
        block = seen.block(name)
        here = (each for each in switch.entries if upper_of(each.prefix) >> 16 == block)
        left = {each.prefix for each in here if (each.prefix, each.action) not in planned.get(name, ())}
        if left:
            yield from _lines(files[name].values(), left)


def _lines(paths: Iterable[Path], prefixes: set[str]) -> Iterator[Unknown]:
    """Yield the lines that name some prefixes, in any way of writing them."""
    for path in paths:
        for number, line in enumerate(read_text(path, MOST_DUMP_BYTES).splitlines(), start=1):
            found = next(iter(_PREFIX.findall(line)), "")
            if found and usual_address(found) in prefixes:
                yield Unknown(str(path), number, line.strip()[:160])
