"""One switch in the terms of its operating system: ports with names and neighbours, uSIDs, entries, settings."""

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Action, Tables, build_tables, switch_tables
from openmrc.fabric.addressing.usid import UsidPlan, block_text, identity, prefix_text
from openmrc.fabric.export.addresses import link_local_of_node, link_local_of_plane, mac, port_address
from openmrc.fabric.export.cages import Cages, CageSlot, slots
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.model.port_settings import LONGEST, PortSettings, switch_port
from openmrc.fabric.model.topology import LinkTier, Topology

LAST_DISTANCE = 250  # administrative distance of the blackhole at the end of a block; 255 would not be used


class NodeTexts:
    """Names and addresses of nodes, each created once: a whole fabric uses each hundreds of times."""

    def __init__(self, plan: UsidPlan) -> None:
        self.name: dict[int, str] = _Made(plan.topology.name)
        self.link_local: dict[int, str] = _Made(partial(link_local_of_node, plan.topology))  # without the plane's part
        self.prefix = [_Made(partial(prefix_text, sids.block)) for sids in plan.planes]


class _Made(dict[int, str]):
    """Strings created on first use."""

    def __init__(self, make: Callable[[int], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: int) -> str:
        self[key] = text = self._make(key)
        return text


class PortRun(NamedTuple):
    """Consecutive ports with equal settings."""

    first: int  # port number
    ports: int
    tier: LinkTier
    rate: int  # bit/s
    buffer: int  # bytes


Facing = tuple[int, int]  # node and port at the other end of a cable
Entry = tuple[str, Action, int]  # prefix, action, port (-1: none)
Route = tuple[str, str, int]  # prefix, address of the next hop, port


@dataclass(frozen=True)
class PortLook:
    """Common settings of ports at equal positions on all switches of a tier."""

    number: int
    tier: LinkTier
    slot: CageSlot
    settings: PortSettings
    name: str = ""  # of a switch that exists
    address: str = ""  # likewise, with prefix length, where it is not the switch's one link-local address

    @property
    def is_link_local(self) -> bool:
        """Whether its address is made by the system rather than written into its configuration."""
        return not self.address or self.address.startswith("fe80:")


@dataclass(frozen=True, eq=False)  # compared by identity: as a key of a cache it is hashed for every text
class PortLayout:
    """The ports of a switch without their neighbours; `layout_of` shares it, and text derived from it, in a tier."""

    runs: tuple[PortRun, ...]
    cages: Cages
    trimming: bool
    names: tuple[str, ...] = ()  # by port number, of a switch that exists; its system's own where there is none
    addresses: tuple[str, ...] = ()  # likewise; with prefix length, empty: the switch's one link-local address

    @cached_property
    def ports(self) -> tuple[PortLook, ...]:
        return tuple(_looks(self))

    @cached_property
    def by_number(self) -> dict[int, PortLook]:
        """Return the ports by their numbers, in their order."""
        return {port.number: port for port in self.ports}

    @property
    def has_hosts(self) -> bool:
        """Whether packets leave the fabric here."""
        return any(run.tier == LinkTier.HOST for run in self.runs)


layout_of = lru_cache(maxsize=256)(PortLayout)


def _looks(layout: PortLayout) -> Iterator[PortLook]:
    places = slots(_rates(layout.runs), layout.cages)
    for run in layout.runs:
        settings = switch_port(run.rate, run.buffer, run.tier == LinkTier.HOST, layout.trimming)
        for number in range(run.first, run.first + run.ports):
            yield PortLook(
                number, run.tier, places[number], settings, _of_port(layout.names, number),
                _of_port(layout.addresses, number),
            )  # fmt: skip


def _of_port(values: tuple[str, ...], number: int) -> str:
    return values[number] if number < len(values) else ""


def _rates(runs: tuple[PortRun, ...]) -> Iterator[float]:
    """Yield the rate of every port in Gb/s; one without a cable keeps its place, at the rate of those before it."""
    after = 0
    before = runs[0].rate
    for run in runs:
        yield from [before / 1e9] * (run.first - after)
        yield from [run.rate / 1e9] * run.ports
        after, before = run.first + run.ports, run.rate


_ACTIONS = {int(action): action for action in Action}


@dataclass(frozen=True)
class SwitchView:
    """The properties of one switch for an exporter."""

    plan: UsidPlan
    texts: NodeTexts
    node: int
    plane: int
    tier: int
    layout: PortLayout
    neighbours: list[int]  # node behind each port, in the order of `layout.ports`
    neighbour_ports: list[int]  # its port
    table: Tables  # entries of the switch, by uSID
    options: ExportOptions

    @property
    def name(self) -> str:
        return self.texts.name[self.node]

    @cached_property
    def facing(self) -> dict[int, Facing]:
        """Return node and port behind each port, by port number."""
        behind = zip(self.neighbours, self.neighbour_ports, strict=True)
        return dict(zip(self.layout.by_number, behind, strict=True))

    @cached_property
    def peers(self) -> list[str]:
        """Return `NAME port NUMBER` of what is behind each port, in the order of `layout.ports`."""
        name = self.texts.name
        return [f"{name[node]} port {port}" for node, port in zip(self.neighbours, self.neighbour_ports, strict=True)]

    @cached_property
    def peer_addresses(self) -> dict[int, str]:
        """Return the address behind each port, by port number, in the order of `layout.ports`."""
        topology = self.plan.topology
        if topology.fabric.found:
            behind = (port_address(topology, self.plane, *end).partition("/")[0] for end in self.facing.values())
            return dict(zip(self.layout.by_number, behind, strict=True))
        begin, end = link_local_of_plane(self.plane), self.texts.link_local
        return dict(zip(self.layout.by_number, [begin + end[node] for node in self.neighbours], strict=True))

    @cached_property
    def entries(self) -> list[Entry]:
        """Return all entries, by uSID."""
        return self._entries(self.table)

    @cached_property
    def sids(self) -> list[Entry]:
        """Return the entries that are not routes, by uSID."""
        return self._entries(self.table.rows(self.table.action != Action.ROUTE))

    @cached_property
    def own(self) -> list[str]:
        """Return the prefixes of the switch's own uSIDs."""
        return [prefix for prefix, action, _ in self.sids if action is Action.UN]

    @cached_property
    def others(self) -> frozenset[str]:
        """Return the prefixes that a switch that exists has besides those of the plan."""
        device = self.plan.topology.found(self.node)
        return frozenset(self.texts.prefix[self.plane][usid] for usid in (device.others if device else ()))

    @cached_property
    def adjacencies(self) -> list[tuple[str, int]]:
        """Return prefix and port of each shifting downlink."""
        return [(prefix, port) for prefix, action, port in self.sids if action is Action.UA]

    @cached_property
    def routes(self) -> list[Route]:
        """Return prefix, address of the next hop, and port of each route, by uSID."""
        found = self.table.rows(self.table.action == Action.ROUTE)
        ports = found.port.tolist()
        next_hops = map(self.peer_addresses.__getitem__, ports)
        return list(zip(self._prefixes(found), next_hops, ports, strict=True))

    def _entries(self, table: Tables) -> list[Entry]:
        actions = map(_ACTIONS.__getitem__, table.action.tolist())
        return list(zip(self._prefixes(table), actions, table.port.tolist(), strict=True))

    def _prefixes(self, table: Tables) -> list[str]:
        return list(map(self.texts.prefix[self.plane].__getitem__, table.usid.tolist()))

    @property
    def mac(self) -> str:
        """Return the MAC of all ports, or of the first one."""
        return mac(self.plan.topology, self.plane, self.node, 0)

    @cached_property
    def port_macs(self) -> dict[int, str]:
        """Return the MAC of each port, by port number."""
        device = self.plan.topology.found(self.node)
        if device is None or len(device.macs) < 2:
            return dict.fromkeys(self.layout.by_number, self.mac)
        return {number: mac(self.plan.topology, self.plane, self.node, number) for number in self.layout.by_number}

    @property
    def address(self) -> str:
        """Return the link-local address of all ports that have no other."""
        device = self.plan.topology.found(self.node)
        if device and len(device.addresses) == 1:
            return device.addresses[0].partition("/")[0]
        return link_local_of_plane(self.plane) + self.texts.link_local[self.node]

    @cached_property
    def port_addresses(self) -> dict[int, str]:
        """Return address and prefix length of each port, by port number."""
        usual = f"{self.address}/64"
        return {port.number: port.address or usual for port in self.layout.ports}

    @property
    def block(self) -> str:
        """Return the prefix of the plane's block. Every export ends it in a blackhole.

        Without one, a uSID whose port is down would take the default route, out of the management port.
        """
        return block_text(self.plan.planes[self.plane].block)

    @property
    def loopback(self) -> str:
        """Return an address of the switch itself, inside its first uSID."""
        return str(ipaddress.IPv6Network(self.own[0]).network_address + 1)

    def peer_mac(self, port: int) -> str:
        return mac(self.plan.topology, self.plane, *self.facing[port])

    def peer_identity(self, port: int) -> str:
        """Return the NIC's own address behind a port."""
        return identity(self.plane, self.facing[port][0])

    def management(self) -> tuple[str, str] | None:
        """Return (address, gateway) of the management port; None: DHCP."""
        return self.options.management_address(self.node - self.plan.topology.nics) if self.options.management else None


PortName = Callable[[PortLook], str]


def linux_name(name: str, number: int) -> str:
    """Name a port as Linux and FRR know it: as it is called, if Linux takes that for a name."""
    return name if name and len(name) <= LONGEST and not {"/", ":"} & set(name) else f"p{number}"


def linux_port(port: PortLook) -> str:
    """Name a port as Linux and FRR know it."""
    return linux_name(port.name, port.number)


def containerlab_port(port: PortLook) -> str:
    """Name a port of a container; eth0 is its management port."""
    return f"eth{port.number + 1}"


@lru_cache(maxsize=64)
def port_names(layout: PortLayout, name: PortName) -> dict[int, str]:
    """Return the name of each port, by number, in the order of `layout.ports`."""
    return {port.number: name(port) for port in layout.ports}


def view(plan: UsidPlan, switch: int, options: ExportOptions | None = None) -> SwitchView:
    """Return one switch's view."""
    if switch < plan.topology.nics:
        raise ConfigError(f"{plan.topology.name(switch)} is a NIC; exports are for switches")
    return _view(plan, NodeTexts(plan), switch, options or ExportOptions(), switch_tables(plan, switch))


class Views:
    """Creates views of the switches of a fabric; tables are built and sorted once."""

    def __init__(self, plan: UsidPlan, options: ExportOptions) -> None:
        self.plan, self.options = plan, options
        self.texts = NodeTexts(plan)
        tables = build_tables(plan)
        self._sorted = tables.rows(np.argsort(tables.switch.astype(np.int64) << 16 | tables.usid, kind="stable"))
        nodes = np.arange(plan.topology.nodes + 1, dtype=np.int32)
        self._first = np.searchsorted(self._sorted.switch, nodes)
        _ = plan.topology.outgoing  # sorted once, before workers are forked

    def of(self, switch: int) -> SwitchView:
        rows = slice(self._first[switch], self._first[switch + 1])
        return _view(self.plan, self.texts, switch, self.options, self._sorted.rows(rows))


def views(plan: UsidPlan, options: ExportOptions) -> Iterator[SwitchView]:
    """View all switches."""
    return map(Views(plan, options).of, range(plan.topology.nics, plan.topology.nodes))


def _view(plan: UsidPlan, texts: NodeTexts, switch: int, options: ExportOptions, own: Tables) -> SwitchView:
    topology, plane = plan.topology, int(plan.topology.node_plane[switch])
    first, out = topology.outgoing
    links = out[first[switch] : first[switch + 1]]
    return SwitchView(
        plan=plan, texts=texts, node=switch, plane=plane, tier=int(topology.node_tier[switch]),
        layout=_layout(topology, switch, links, options),
        neighbours=topology.link_destination[links].tolist(),
        neighbour_ports=topology.link_port[topology.link_reverse[links]].tolist(), table=own, options=options,
    )  # fmt: skip


def _layout(topology: Topology, switch: int, links: Ints, options: ExportOptions) -> PortLayout:
    device, runs = topology.found(switch), _runs(topology, links)
    if device is None:
        return layout_of(runs, options.cages, options.trimming)
    own = device.addresses if len(device.addresses) > 1 else ()
    return layout_of(runs, options.cages, options.trimming, device.ports, own)


def _runs(topology: Topology, links: Ints) -> tuple[PortRun, ...]:
    """Join ports that are alike and follow each other; `links` are sorted by port."""
    number = topology.link_port[links].astype(np.int64)
    place = number - np.arange(len(links))  # the same while no number is left out
    kind = np.stack([place, topology.link_tier[links], topology.link_rate[links], topology.link_buffer[links]])
    changes = np.flatnonzero(np.any(kind[:, 1:] != kind[:, :-1], axis=0))
    begins = [0, *(changes + 1).tolist()][: len(links)]
    return tuple(
        PortRun(int(number[at]), end - at, LinkTier(kind[1, at]), int(kind[2, at]), int(kind[3, at]))
        for at, end in zip(begins, [*begins[1:], len(links)], strict=True)
    )
