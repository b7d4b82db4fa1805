"""Which ports of a fabric's switches are joined, and what is behind the others, from the files of the switches alone.

Evidence, the best first: LLDP; a description in the form of the exports (`NAME port NUMBER`) or with the names of a
switch and its port; an address in the subnet of one other port; a route's next hop. Addresses are compared within a
plane's block, since planes may repeat them. Parallel cables that only numbers tell apart are paired in their order.
"""

import ipaddress
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.readback.seen import UPPER_BITS, SeenPort, SeenSwitch

End = tuple[str, str]  # switch and interface
_NUMBERED = re.compile(r"^(\S+) port (\d+)$")
_NUMBER = re.compile(r"(\d+)")


@dataclass
class SeenNicPort:
    """A port of a switch behind which there is a NIC."""

    name: str = ""  # of the NIC, or of its machine; empty: nobody said
    interface: str = ""  # of the machine, by LLDP
    plane: int = -1  # number of the NIC's port, by a description
    address: str = ""  # next hop


@dataclass
class SeenFabric:
    """The switches of a folder, and what joins them."""

    switches: dict[str, SeenSwitch]
    cables: dict[End, End] = field(default_factory=dict)  # both directions
    nics: dict[End, SeenNicPort] = field(default_factory=dict)
    numbers: dict[End, int] = field(default_factory=dict)  # of ports, as the far end's description says
    doubts: list[str] = field(default_factory=list)

    def join(self, one: End, two: End) -> None:
        """Note a cable; of two that end at one port, the first one known counts."""
        if one in self.cables or two in self.cables:
            if self.cables.get(one) != two:
                self.doubts.append(f"{_text(one)} and {_text(two)} cannot be joined: one of them has another cable")
            return
        self.cables[one], self.cables[two] = two, one

    def order(self, switch: str) -> dict[str, int]:
        """Return the position of each port: as the files have them, unless those are merely sorted as text."""
        names = list(self.switches[switch].ports)
        names = sorted(names, key=natural) if names == sorted(names) else names
        return {name: index for index, name in enumerate(names)}

    def block(self, switch: str) -> int:
        """Return the upper 32 bits of a switch's own uSIDs; 0 if it has none, -1 if they differ."""
        own = (upper_of(each.prefix) >> 16 for each in self.switches[switch].entries if each.action is Action.UN)
        blocks = {block for block in own if block}
        return blocks.pop() if len(blocks) == 1 else -1 if blocks else 0

    def planes(self) -> dict[str, int]:
        """Return a number for each switch's plane: those of a plane have or lead to the same uSIDs, of one block."""
        blocks = {name: self.block(name) for name in self.switches}
        sids = {
            name: {upper_of(each.prefix) for each in switch.entries if upper_of(each.prefix) >> 16 == blocks[name]}
            or {blocks[name]}
            for name, switch in self.switches.items()
        }
        known: dict[int, list[str]] = defaultdict(list)
        for name, own in sids.items():
            for sid in own:
                known[sid].append(name)
        found = parts(sids, lambda name: itertools.chain.from_iterable(known.pop(sid, ()) for sid in sids[name]))
        found.sort(key=lambda part: min(min(sids[name]) for name in part))
        return {name: plane for plane, part in enumerate(found) for name in part}


def parts(nodes: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> list[list[str]]:
    """Return the connected parts of a graph."""
    left, found = dict.fromkeys(nodes), []
    while left:
        part, waiting = [], [next(iter(left))]
        left.pop(waiting[0])
        while waiting:
            part.append(waiting.pop())
            for each in neighbours(part[-1]):
                if each in left:
                    del left[each]
                    waiting.append(each)
        found.append(part)
    return found


def natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in names by their value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(text)]


def usual_name(text: str) -> str:
    """Return a name without what no node of a fabric file may have in its name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text).lstrip("_.-")


@lru_cache(maxsize=1 << 17)
def upper_of(prefix: str) -> int:
    """Return the upper 48 bits of a /48; 0 for other lengths."""
    network = ipaddress.IPv6Interface(prefix).network
    return int(network.network_address) >> 80 if network.prefixlen == UPPER_BITS else 0


def _text(end: End) -> str:
    return f"{end[0]}:{end[1]}"


def join_ports(switches: dict[str, SeenSwitch]) -> SeenFabric:
    """Find the cables between switches, and the ports behind which there are NICs."""
    fabric = SeenFabric(switches)
    _Joining(fabric).all()
    return fabric


class _Joining:
    """The evidence, in the order in which it counts."""

    def __init__(self, fabric: SeenFabric) -> None:
        self.fabric = fabric
        self.called = {name.lower(): name for name in fabric.switches}
        self.blocks = {name: fabric.block(name) for name in fabric.switches}

    def all(self) -> None:
        for switch in self.fabric.switches.values():
            self._find_interfaces(switch)
        self._by_lldp()
        self._by_description()
        self._by_subnet()
        self._by_next_hop()
        self._nics()

    def _ends(self) -> Iterator[tuple[End, SeenPort]]:
        for name, switch in self.fabric.switches.items():
            for port, seen in switch.ports.items():
                yield (name, port), seen

    def _known(self, system: str) -> str | None:
        """Return the switch of a system's name; a domain name is ignored."""
        return self.called.get(system.lower()) or self.called.get(system.lower().split(".", 1)[0])

    def _find_interfaces(self, switch: SeenSwitch) -> None:
        """Find the interfaces of next hops by their subnets, where routes do not name them."""
        subnets = [
            (ipaddress.IPv6Interface(each).network, name)
            for name, port in switch.ports.items()
            for each in port.addresses
        ]
        vias = {each.via: ipaddress.IPv6Address(each.via) for each in switch.entries if each.via and not each.interface}
        towards = {
            via: next((name for subnet, name in subnets if address in subnet), "") for via, address in vias.items()
        }
        switch.entries = [
            each if each.interface else each._replace(interface=towards.get(each.via, "")) for each in switch.entries
        ]

    def _by_lldp(self) -> None:
        for end, port in self._ends():
            for heard in port.neighbours:
                peer = self._known(heard.system)
                if peer is None:
                    interface = next(iter(heard.ports), "")
                    self.fabric.nics.setdefault(end, SeenNicPort(usual_name(heard.system.split(".", 1)[0]), interface))
                elif there := next((name for name in heard.ports if name in self.fabric.switches[peer].ports), None):
                    self.fabric.join(end, (peer, there))

    def _by_description(self) -> None:
        facing: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for (switch, name), port in self._ends():
            words = re.split(r"[\s,;|]+|:(?!\d)", port.description)
            peer = next((known for word in words if (known := self._known(word)) and known != switch), None)
            numbered = _NUMBERED.match(port.description)
            if peer is None:
                if numbered and (switch, name) not in self.fabric.nics:
                    self.fabric.nics[switch, name] = SeenNicPort(usual_name(numbered[1]), plane=int(numbered[2]))
            elif there := next((word for word in words if word in self.fabric.switches[peer].ports), None):
                self.fabric.join((switch, name), (peer, there))
            else:
                facing[switch, peer].append((int(numbered[2]) if numbered else len(facing[switch, peer]), name))
        orders = {peer: self.fabric.order(peer) for peer in {peer for _, peer in facing}}
        for (switch, peer), ports in facing.items():
            theirs = sorted((name for _, name in facing.get((peer, switch), ())), key=orders[peer].__getitem__)
            if len(theirs) == len(ports):
                for (number, name), there in zip(sorted(ports), theirs, strict=True):
                    self.fabric.join((switch, name), (peer, there))
                    self.fabric.numbers[peer, there] = number

    def _by_subnet(self) -> None:
        ends: dict[tuple[int, str], list[End]] = defaultdict(list)
        for end, port in self._ends():
            for address in port.addresses:
                if not address.startswith("fe80:"):
                    ends[self.blocks[end[0]], str(ipaddress.IPv6Interface(address).network)].append(end)
        for known in ends.values():
            if len(known) == 2 and known[0][0] != known[1][0]:
                self.fabric.join(*known)

    def _by_next_hop(self) -> None:
        """Join ports by whose address a route leads to; a switch may have one address at all its ports."""
        owners: dict[tuple[int, str], set[str]] = defaultdict(set)
        for end, port in self._ends():
            for address in port.addresses:
                owners[self.blocks[end[0]], address.partition("/")[0]].add(end[0])
        facing: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for name, switch in self.fabric.switches.items():
            for entry in sorted(switch.entries, key=lambda each: upper_of(each.prefix)):
                peers = owners.get((self.blocks[name], entry.via), set()) - {name}
                is_free = entry.interface in switch.ports and (name, entry.interface) not in self.fabric.cables
                if len(peers) == 1 and is_free:
                    ports = facing[name, peers.pop()]
                    if entry.interface not in [port for _, port in ports]:
                        ports.append((upper_of(entry.prefix), entry.interface))
        for (one_side, other), own in facing.items():
            theirs = facing.get((other, one_side), [])
            if one_side < other and len(own) == len(theirs):
                for (_, one), (_, two) in zip(sorted(own), sorted(theirs), strict=True):
                    self.fabric.join((one_side, one), (other, two))

    def _nics(self) -> None:
        """A NIC is behind a port that leads to no switch and out of which a uSID leads."""
        leads: dict[End, str] = {}
        for name, switch in self.fabric.switches.items():
            for entry in switch.entries:
                if entry.action in (Action.ROUTE, Action.UA) and upper_of(entry.prefix) >> 16 == self.blocks[name]:
                    leads.setdefault((name, entry.interface), entry.via)
        nics = self.fabric.nics
        for end in [end for end in nics if end in self.fabric.cables or end not in leads]:
            told = nics.pop(end)
            if end not in self.fabric.cables:
                self.fabric.doubts.append(f"{_text(end)}: {told.name} is behind it, but no uSID leads there")
        for end, via in leads.items():
            if end not in self.fabric.cables and end[1] in self.fabric.switches[end[0]].ports:
                nics.setdefault(end, SeenNicPort()).address = via
        self._without_files(nics)

    def _without_files(self, nics: dict[End, SeenNicPort]) -> None:
        """A name at several ports of a plane is that of a switch without files, unless LLDP tells interfaces apart."""
        count: dict[tuple[str, int], list[End]] = defaultdict(list)
        planes = self.fabric.planes()
        for end, nic in nics.items():
            if nic.name and not nic.interface:
                count[nic.name, planes[end[0]]].append(end)
        for (name, _), ends in count.items():
            if len(ends) > 1:
                self.fabric.doubts.append(f"{name} is behind {len(ends)} ports, {_text(ends[0])} first: no file of it")
                for end in ends:
                    del nics[end]


def ends_between(cables: dict[End, End], ones: Iterable[str]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the pairs of interfaces that join two switches, by (switch, switch), in both directions."""
    known = set(ones)
    found: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for (here, port), (there, far) in cables.items():
        if here in known:
            found[here, there].append((port, far))
    return found
