"""Compare the actual cabling, as reported by LLDP, with the planned cables.

right     a port hears the port that the plan connects to it; both do where there is a dump of both
wrong     it hears another port
swapped   two wrong cables that would be right if exchanged at one end
missing   it hears nothing
unknown   it hears a port outside the fabric, or anything on a port that has no cable
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.walk import Cabling
from openmrc.fabric.cables.lldp import Neighbour
from openmrc.fabric.cables.placement import device_name
from openmrc.fabric.cables.ports import SCHEMES, Ports, place_ports
from openmrc.fabric.model.topology import Topology

_NO_DUMP, _NOTHING, _STRANGER = -2, -1, -3  # reported neighbour that is not a port of the fabric


@dataclass(frozen=True)
class CablingDifference:
    kind: str  # wrong, swapped, missing, unknown
    port: str  # NODE:PORT, with the interface's name
    expected: str
    found: str
    remedy: str = ""


@dataclass
class CablingReport:
    cables: int
    right: int = 0
    unchecked: int = 0
    findings: list[CablingDifference] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def counts(self) -> dict[str, int]:
        kinds = ("wrong", "swapped", "missing", "unknown")
        return {kind: sum(each.kind == kind for each in self.findings) for kind in kinds}


def check_cabling(topology: Topology, dumps: Mapping[str, list[Neighbour]]) -> CablingReport:
    """Compare dumps, by the name of their switch or machine, with a fabric's cables."""
    return _Check(topology, dumps).report()


class _Check:
    """The plan and the dumps during the comparison; an end is a number, `first[node] + port`."""

    def __init__(self, topology: Topology, dumps: Mapping[str, list[Neighbour]]) -> None:
        self.topology = topology
        self.names = EndNames(topology, place_ports(topology))
        self.first = Cabling(topology).first
        end = self.first[topology.link_source] + topology.link_port
        self.planned = np.full(int(self.first[-1]), -1, dtype=np.int64)  # the other end of each; -1: no cable
        self.planned[end] = end[topology.link_reverse]
        self.heard = np.full(len(self.planned), _NO_DUMP, dtype=np.int64)
        self.unknown: list[CablingDifference] = []
        self.emptied: set[int] = set()  # ports whose plugs were found elsewhere
        for system, neighbours in dumps.items():
            self._take(system, neighbours)

    def _take(self, system: str, neighbours: list[Neighbour]) -> None:
        """Record the neighbours of one machine's ports; other ports hear nothing."""
        nodes = self.names.nodes(system)
        if not nodes:
            first, last = self.topology.name(self.topology.nics), self.topology.name(self.topology.nodes - 1)
            raise ConfigError(f"dump of {system!r}: no such switch or machine; switches are {first} to {last}")
        for node in nodes:
            self.heard[self.first[node] : self.first[node + 1]] = _NOTHING
        for each in neighbours:
            self._hear(system, each)

    def _hear(self, system: str, neighbour: Neighbour) -> None:
        here = self._end(system, neighbour.interface)
        ends = (self._end(neighbour.system, name) for name in neighbour.ports)
        there = next((end for end in ends if end is not None), None)
        text = f"{neighbour.system or 'a system without name'} {' or '.join(neighbour.ports) or 'port without name'}"
        if here is None or self.planned[here] < 0:
            if self.names.nodes(neighbour.system):  # otherwise a port of the management network
                self.unknown.append(CablingDifference("unknown", f"{system}:{neighbour.interface}", "no cable", text))
        elif there is None:
            self.heard[here] = _STRANGER
            self.unknown.append(
                CablingDifference("unknown", self._port(here), self._port(int(self.planned[here])), text)
            )
        else:
            self.heard[here] = there

    def _end(self, system: str, interface: str) -> int | None:
        found = self.names.end(system, interface)
        if found is None or found[1] >= self.first[found[0] + 1] - self.first[found[0]]:
            return None
        return int(self.first[found[0]]) + found[1]

    def report(self) -> CablingReport:
        heard, planned = self.heard, self.planned
        cable = np.flatnonzero(planned > np.arange(len(planned)))  # one end of each
        right, silent = heard == planned, heard == _NO_DUMP
        fine = (right | silent)[cable] & (right | silent)[planned[cable]]
        unchecked = silent[cable] & silent[planned[cable]]
        wrong_ends = np.flatnonzero((heard >= 0) & (planned >= 0) & ~right)
        wrong = dict(zip(wrong_ends.tolist(), heard[wrong_ends].tolist(), strict=True))
        findings = [*self._wrong(wrong), *self._missing(), *self.unknown]
        return CablingReport(len(cable), int((fine & ~unchecked).sum()), int(unchecked.sum()), findings)

    def _wrong(self, wrong: dict[int, int]) -> Iterator[CablingDifference]:
        """Report each wrong cable once, and two that should be exchanged as one."""
        reported: set[int] = set()
        for here, there in wrong.items():
            if here in reported or there in reported:
                continue
            reported |= {here, there}
            meant, rival = int(self.planned[here]), int(self.planned[there])  # the planned neighbour of `there`
            if rival >= 0 and self.heard[rival] == meant:
                reported |= {rival, meant}
                yield self._finding("swapped", (here, rival), (meant, there), (there, meant),
                                    f"exchange the plugs at {self._port(there)} and {self._port(meant)}")  # fmt: skip
            else:
                self.emptied.add(meant)
                remedy = f"move the plug at {self._port(there)} to {self._port(meant)}"
                yield self._finding("wrong", (here,), (meant,), (there,), remedy)

    def _finding(
        self, kind: str, ports: tuple[int, ...], expected: tuple[int, ...], found: tuple[int, ...], remedy: str
    ) -> CablingDifference:
        first, second, third = (" and ".join(map(self._port, ends)) for ends in (ports, expected, found))
        return CablingDifference(kind, first, second, third, remedy)

    def _missing(self) -> Iterator[CablingDifference]:
        """Report each missing cable once; an empty port whose plug is elsewhere belongs to that finding."""
        reported: set[int] = set()
        for here in np.flatnonzero((self.heard == _NOTHING) & (self.planned >= 0)).tolist():
            other = int(self.planned[here])
            if here in reported or here in self.emptied:
                continue
            reported |= {here, other}
            one_way = self.heard[other] == here
            found = f"nothing, though {self._port(other)} hears it" if one_way else "nothing"
            yield CablingDifference("missing", self._port(here), self._port(other), found)

    def _port(self, end: int) -> str:
        node = int(np.searchsorted(self.first, end, side="right")) - 1
        number = end - int(self.first[node])
        return f"{self.topology.name(node)}:{self.topology.port_name(node, number) or number}"


class EndNames:
    """Finds nodes by system names, and ports by interface names, whichever system reports them."""

    def __init__(self, topology: Topology, ports: Ports) -> None:
        self.topology, self.ports = topology, ports
        self.of_system: dict[str, list[int]] = {}
        for node in range(topology.nodes):
            self.of_system.setdefault(device_name(topology, node).lower(), []).append(node)
            if node < topology.nics and topology.nics_per_host > 1:
                self.of_system.setdefault(topology.name(node).lower(), []).append(node)
        self.of_model: dict[int, dict[str, int]] = {}

    def nodes(self, system: str) -> list[int]:
        """Return the nodes of a system: a switch, or all NICs of a machine; a domain name is ignored."""
        name = system.lower()
        return self.of_system.get(name) or self.of_system.get(name.split(".", 1)[0]) or []

    def end(self, system: str, interface: str) -> tuple[int, int] | None:
        nodes = self.nodes(system)
        if nodes and nodes[0] < self.topology.nics:
            for node in nodes:
                for port in range(max(1, self.ports.nic_ports)):
                    names = {self.ports.nic_interface(node, port), self.topology.port_name(node, port)}
                    names |= {f"p{port}"} if len(nodes) == 1 else set()
                    if interface in names:
                        return node, port
            return None
        number = self._of_switch(nodes[0]).get(interface) if nodes else None
        return None if number is None else (nodes[0], number)

    def _of_switch(self, node: int) -> dict[str, int]:
        """Return the port numbers of a model's interfaces, by every name that a system may use."""
        device = self.topology.found(node)
        if device and device.ports:
            return {name: number for number, name in enumerate(device.ports) if name}
        model = int(self.ports.model[node])
        if model not in self.of_model:
            begin = int(self.ports.first[model])
            following = self.ports.first[self.ports.first > begin]
            end = int(following.min()) if len(following) else len(self.ports.slots)
            self.of_model[model] = {
                name(number - begin, self.ports.slots[number]): number - begin
                for name in SCHEMES.values()
                for number in range(begin, end)
            }
        return self.of_model[model]
