"""From switches and cables to the regular fabric that they form, or the reason why they form none.

Tiers count from the NICs; switches are put in the order of their neighbours' ports, which gives the counts of a
`Fabric`. Its cables are compared with those found, one by one, so no fabric passes that is not regular.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from openmrc.base.terminal import counted
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Sites, Tier
from openmrc.fabric.model.topology import LinkTier, Topology
from openmrc.fabric.readback.seen_cables import End, SeenFabric, SeenNicPort, ends_between, natural, parts

UNKNOWN_GBPS = 100.0  # of ports whose speed nobody said
MOST_MISSING = 0.1  # of the cables between T0s and T1s of a pod; beyond that it is another kind of fabric
_LONG_US = 5.0  # of a long link; nobody says its length


class IrregularError(Exception):
    """The fabric is no regular one; the message says why."""


@dataclass
class Formed:
    """A regular fabric, and what of it each node and port is."""

    topology: Topology
    switches: list[str]  # in the order of node numbers after the NICs
    nics: list[list[End]]  # by NIC and plane: the switch's port
    nic_names: list[str]  # empty: nobody said
    ports: dict[tuple[int, int], str] = field(default_factory=dict)  # node and port number -> interface


def form(seen: SeenFabric) -> Formed:
    """Find the regular fabric; `IrregularError` if there is none. Cables that few T0s lack are planned and noted."""
    reasons, doubts, missing = [], list(seen.doubts), _plan_missing(seen)
    for by_port in (True, False):
        try:
            return _Form(seen, by_port).formed()
        except IrregularError as error:
            reasons.append(error)
    seen.doubts = doubts
    for switch, port in missing:
        del seen.cables[switch, port], seen.switches[switch].ports[port]
    raise reasons[0]


def _plan_missing(seen: SeenFabric) -> list[End]:
    """Join T0s and T1s of a pod that no cable joins; return the ports for it, which the switches do not have."""
    tier, gbps, planned = tiers_of(seen), 0.0, list[End]()
    near: dict[str, Counter[str]] = defaultdict(Counter)
    for (here, port), (there, _) in seen.cables.items():
        near[here][there] += 1
        if tier.get(here) == 0 and tier[there] == 1:
            gbps = max(gbps, seen.switches[here].ports[port].gbps)
    for pod in _pods(tier, tier, near):
        pairs = [(t0, t1) for t0 in pod if tier[t0] == 0 for t1 in pod if tier[t1] == 1]
        most = max((near[t0][t1] for t0, t1 in pairs), default=0)
        lacking = [(t0, t1) for t0, t1 in pairs for _ in range(most - near[t0][t1])]
        if len(lacking) > MOST_MISSING * most * len(pairs):
            continue
        for number, (t0, t1) in enumerate(lacking):
            ends = (t0, f"missing{number}"), (t1, f"missing{number}")
            for switch, port in ends:
                seen.switches[switch].port(port).gbps = gbps
            seen.join(*ends)
            planned += ends
            seen.doubts.append(f"a cable of {t0} and {t1} is missing; planned as port missing{number} of both")
    return planned


def _pods(switches: Iterable[str], tier: Mapping[str, int], near: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the T0s and T1s that cables between them join."""
    below = (name for name in switches if tier[name] < 2)
    return parts(below, lambda name: (each for each in near[name] if tier[each] < 2))


def tiers_of(seen: SeenFabric) -> dict[str, int]:
    """Return the tier of every switch that cables join to a NIC: the cables between it and the nearest T0."""
    near: dict[str, list[str]] = defaultdict(list)
    for (here, _), (there, _) in seen.cables.items():
        near[here].append(there)
    tier = dict.fromkeys((switch for switch, _ in seen.nics), 0)
    row = list(tier)
    for level in itertools.count(1):
        row = [there for here in row for there in near[here] if there not in tier]
        if not row:
            return tier
        tier |= dict.fromkeys(row, level)
    return tier


@dataclass
class _Plane:
    """The switches of a plane in the order of their numbers, and the counts of its shape."""

    tiers: list[list[str]]  # T0s, T1s, T2s
    sites: int
    pods: int
    bundle: int  # of T0s
    core_bundle: int
    t0s_of_pod: int
    long: int


class _Form:
    """Puts everything in order: T0s of the first plane by the ports of a T1, or by their names."""

    def __init__(self, seen: SeenFabric, by_port: bool) -> None:
        self.seen, self.by_port = seen, by_port
        self.tier = tiers_of(seen)
        self.between = ends_between(seen.cables, seen.switches)
        self.near: dict[str, dict[str, int]] = defaultdict(dict)  # neighbours, and the cables to each
        for (here, there), ends in self.between.items():
            self.near[here][there] = len(ends)
        self.place = {name: seen.order(name) for name in seen.switches}
        self.nics_of: dict[str, list[End]] = {}
        for end in seen.nics:
            self.nics_of.setdefault(end[0], []).append(end)
        for name, ends in self.nics_of.items():
            ends.sort(key=lambda end: self.place[name][end[1]])

    def formed(self) -> Formed:
        if not self.seen.nics:
            raise IrregularError("no port of any switch leads to a NIC")
        if apart := [name for name in self.seen.switches if name not in self.tier]:
            raise IrregularError(f"{apart[0]} is joined to no switch with NICs")
        planes = self._planes()
        first = self._ordered(planes[0], None)
        nics, names, of_host = self._numbered(first, planes)
        number = {end: nic for nic, ends in enumerate(nics) for end in ends}
        key = {t0: min(number[end] for end in ends) for t0, ends in self.nics_of.items()}
        forms = [self._ordered(part, key) for part in planes]
        reasons = []
        for attach in ("block", "rail") if of_host > 1 else ("block",):
            try:
                return self._checked(forms, nics, names, Hosts(count=len(nics) // of_host, nics=of_host, attach=attach))
            except IrregularError as error:
                reasons.append(error)
        raise reasons[0]

    def _planes(self) -> list[list[str]]:
        """Return the planes in the order of the NICs' ports if descriptions tell them, else of their uSIDs."""
        found = parts(self.tier, lambda name: self.near[name])
        told = {
            id(part): Counter(self.seen.nics[end].plane for name in part for end in self.nics_of.get(name, ()))
            for part in found
        }
        order = [max(told[id(part)], key=told[id(part)].__getitem__, default=-1) for part in found]
        if sorted(order) == list(range(len(found))):
            return [part for _, part in sorted(zip(order, found, strict=True))]
        by_sid = self.seen.planes()
        return sorted(found, key=lambda part: (by_sid[part[0]], min(map(natural, part))))

    def _ordered(self, part: list[str], key: dict[str, int] | None) -> _Plane:
        """Put a plane's switches in order; `key` has the lowest NIC of each T0, once NICs are numbered."""
        level = [[name for name in part if self.tier[name] == tier] for tier in range(3)]
        if sum(map(len, level)) < len(part):
            raise IrregularError(f"{max(part, key=self.tier.__getitem__)} is in a fourth tier")
        tops = max(tier for tier in range(3) if level[tier])
        long = {(a, b): n for a in level[tops] for b, n in self.near[a].items() if self.tier[b] == tops}
        for here in itertools.chain(*level[:tops]):
            if level_with := next((each for each in self.near[here] if self.tier[each] == self.tier[here]), None):
                raise IrregularError(f"{here} and {level_with}, of one tier, are joined below the top")
        sites = parts(part, lambda name: [each for each in self.near[name] if (name, each) not in long])
        sites.sort(key=lambda site: self._site_key(site, key))
        if len(sites) > 2:
            raise IrregularError(f"long links join {len(sites)} sites; two are known")
        ordered = [self._site(site, tops, key) for site in sites]
        if len(sites) == 2:
            self._twins(ordered, tops, long)
        uniform = {(each.bundle, each.core_bundle, each.pods) for each in ordered}
        if len(uniform) > 1:
            raise IrregularError("the two sites are unlike")
        tiers = [[name for each in ordered for name in each.tiers[tier]] for tier in range(3)]
        return _Plane(
            tiers, len(sites), ordered[0].pods, ordered[0].bundle, ordered[0].core_bundle,
            max(each.t0s_of_pod for each in ordered), _only(long.values(), "long links of switches") if long else 0,
        )  # fmt: skip

    def _site_key(self, site: list[str], key: dict[str, int] | None) -> tuple[int, list[tuple[int, str]]]:
        t0s = [name for name in site if self.tier[name] == 0]
        names = [self.seen.nics[end].name for t0 in t0s for end in self.nics_of[t0]]
        return min((key[t0] for t0 in t0s), default=0) if key else 0, min(map(natural, names if all(names) else t0s))

    def _site(self, site: list[str], tops: int, key: dict[str, int] | None) -> _Plane:
        """Put the switches of a site in order, pod by pod."""
        made = [self._pod(pod, key) for pod in _pods(site, self.tier, self.near)]
        counts = [self.near[t0][t1] for t0s, t1s in made for t0 in t0s for t1 in t1s if t1 in self.near[t0]]
        apart = [(t0, t1) for t0s, t1s in made for t0 in t0s for t1 in t1s if t1 not in self.near[t0]]
        if apart:
            others = f", and {counted(len(apart) - 1, 'more pair is', 'more pairs are')} not" if apart[1:] else ""
            raise IrregularError(f"{apart[0][0]} is not joined to {apart[0][1]} of its pod{others}")
        bundle = _only(counts, "parallel links between T0 and T1") if counts else 1
        most = max(len(t0s) for t0s, _ in made)
        if tops < 2:
            if len(made) > 1:
                raise IrregularError("T0s that no T1 joins are in one plane")
            return _Plane([*made[0], []], 1, 1, bundle, 1, most, 0)
        return self._pods(made, bundle, most, key)

    def _pod(self, pod: list[str], key: dict[str, int] | None) -> tuple[list[str], list[str]]:
        t0s = sorted((name for name in pod if self.tier[name] == 0), key=natural)
        t1s = sorted((name for name in pod if self.tier[name] == 1), key=natural)
        if self.by_port and t1s:
            t1s.sort(key=lambda t1: self._first_port(t0s[0], t1))
            t0s.sort(key=lambda t0: self._first_port(t1s[0], t0))
        if key:
            t0s.sort(key=key.__getitem__)
        return t0s, t1s

    def _pods(
        self, made: list[tuple[list[str], list[str]]], bundle: int, most: int, key: dict[str, int] | None
    ) -> _Plane:
        """Put pods in order, and T1s so that those of one position meet one column of T2s."""
        made.sort(key=lambda pod: natural(pod[0][0]))
        t2s = sorted(
            {each for _, t1s in made for t1 in t1s for each in self.near[t1] if self.tier[each] == 2}, key=natural
        )
        core = _only(
            [n for _, t1s in made for t1 in t1s for each, n in self.near[t1].items() if self.tier[each] == 2],
            "parallel links between T1 and T2",
        )
        if self.by_port:
            place = {t1: self._first_port(t2s[0], t1) for _, t1s in made for t1 in t1s if t1 in self.near[t2s[0]]}
            made.sort(key=lambda pod: min((place[t1] for t1 in pod[1] if t1 in place), default=0))
        if key:
            made.sort(key=lambda pod: min(key[t0] for t0 in pod[0]))
        columns = [self._column(t1) for t1 in made[0][1]]
        for index, (_, t1s) in enumerate(made):
            by_first = {self._column(t1)[0]: t1 for t1 in t1s}
            firsts = [next((by_first[each] for each in column if each in by_first), None) for column in columns]
            if None in firsts or len(t1s) != len(columns) or len(set(map(len, columns))) > 1:
                raise IrregularError("T1s of different pods do not meet the same T2s")
            made[index] = (made[index][0], [each for each in firsts if each])
        rows = [column[row] for row in range(len(columns[0])) for column in columns]
        t0s, t1s = ([name for pod in made for name in pod[tier]] for tier in (0, 1))
        return _Plane([t0s, t1s, rows], 1, len(made), bundle, core, most, 0)

    def _column(self, t1: str) -> list[str]:
        above = [each for each in self.near[t1] if self.tier[each] == 2]
        if not above:
            raise IrregularError(f"{t1} is joined to no T2")
        return sorted(above, key=(lambda t2: self._first_port(t1, t2)) if self.by_port else natural)

    def _twins(self, sites: list[_Plane], tops: int, long: dict[tuple[str, str], int]) -> None:
        """Put the top switches of the second site in the order of those that they are joined to."""
        there = {a: b for a, b in long if a in sites[0].tiers[tops]}
        twins = [there.get(name, "") for name in sites[0].tiers[tops]]
        if sorted(twins) != sorted(sites[1].tiers[tops]):
            raise IrregularError("long links do not join the top switches of two sites one to one")
        sites[1].tiers[tops] = twins

    def _first_port(self, switch: str, peer: str) -> int:
        return min((self.place[switch][port] for port, _ in self.between.get((switch, peer), ())), default=0)

    def _numbered(self, first: _Plane, planes: list[list[str]]) -> tuple[list[list[End]], list[str], int]:
        """Return the NICs, by number, as their ports on every plane; their names; and the NICs of a machine."""
        plane_of = {name: index for index, part in enumerate(planes) for name in part}
        named = self._named(plane_of)
        position = {t0: index for index, t0 in enumerate(first.tiers[0])}
        for nic, ends in named.items():
            if sorted(plane_of[end[0]] for end in ends) != list(range(len(planes))):
                raise IrregularError(f"NIC {nic} has ports on {len(ends)} of {len(planes)} planes")
            ends.sort(key=lambda end: plane_of[end[0]])

        def where(nic: str) -> tuple[int, int]:
            (t0, port) = named[nic][0]
            return position[t0], self.nics_of[t0].index((t0, port))

        machines: dict[str, list[str]] = defaultdict(list)
        for nic in named:
            host, mark, number = nic.rpartition("-n")
            machines[host if mark and number.isdigit() else nic].append(nic)
        of_host = {len(own) for own in machines.values()}
        if len(of_host) > 1:
            machines, of_host = {nic: [nic] for nic in named}, {1}
        for own in machines.values():
            own.sort(key=natural)
        ordered = [nic for own in sorted(machines.values(), key=lambda own: where(own[0])) for nic in own]
        return [named[nic] for nic in ordered], [nic if nic[:1] != "?" else "" for nic in ordered], of_host.pop()

    def _named(self, plane_of: dict[str, int]) -> dict[str, list[End]]:
        """Return the ports of each NIC: by name, else by the address behind them, else by position in their plane."""
        nics = self.seen.nics
        if all(nic.name for nic in nics.values()):
            return _by_name(nics, plane_of)
        planes: list[list[End]] = [[] for _ in range(max(plane_of.values()) + 1)]
        for t0 in sorted(self.nics_of, key=natural):
            planes[plane_of[t0]] += self.nics_of[t0]
        addresses = [Counter(nics[end].address for end in ends) for ends in planes]
        alike = all(each == addresses[0] for each in addresses) and max(addresses[0].values()) == 1 and len(planes) > 1
        found: dict[str, list[End]] = defaultdict(list)
        for ends in planes:
            for index, end in enumerate(ends):
                found[f"?{nics[end].address if alike else index}"].append(end)
        return found

    def _checked(self, forms: list[_Plane], nics: list[list[End]], names: list[str], hosts: Hosts) -> Formed:
        """Build the fabric of these counts and compare its cables with those found."""
        if len({each.sites for each in forms}) > 1:
            raise IrregularError("planes have different numbers of sites")
        planes = [self._described(each, [ends[index] for ends in nics]) for index, each in enumerate(forms)]
        sites = None
        if forms[0].sites > 1:
            tops = max(tier for tier in range(3) if forms[0].tiers[tier])
            rates = self._gbps(forms[0].tiers[tops], lambda tier: tier == tops)
            sites = Sites(links=forms[0].long, gbps=rates or planes[0].host_gbps, link_us=_LONG_US)
        grouped = tuple(
            msgspec.structs.replace(plane, count=len(list(own))) for plane, own in itertools.groupby(planes)
        )
        fabric = Fabric(name="learned", hosts=hosts, planes=grouped, sites=sites)
        topology = build(fabric)
        switches = [name for each in forms for tier in each.tiers for name in tier]
        if len(switches) != topology.nodes - topology.nics:
            raise IrregularError(f"{len(switches)} switches where {topology.nodes - topology.nics} would be regular")
        formed = Formed(topology, switches, nics, names)
        self._compare(formed)
        return formed

    def _described(self, plane: _Plane, ends: Sequence[End]) -> Plane:
        t0s, t1s, t2s = plane.tiers
        down = max(len(self.nics_of[t0]) for t0 in t0s)
        if t1s or plane.long:
            told = [self.seen.numbers.get((t0, port)) for t0 in t0s for port in self.seen.switches[t0].ports
                    if (t0, port) in self.seen.cables]  # fmt: skip
            down = max(down, min((number for number in told if number is not None), default=0))
        up = sum(n for name, n in self.near[t0s[0]].items() if self.tier[name] == 1)
        t1_up = sum(n for name, n in self.near[t1s[0]].items() if self.tier[name] == 2) if t1s else 0
        host = self._gbps_of(ends) or UNKNOWN_GBPS
        above = self._gbps(t0s, lambda tier: tier == 1) or host
        core = self._gbps(t1s, lambda tier: tier == 2) or above
        t0 = (
            Tier(down=down, up=up, bundle=plane.bundle, up_gbps=above if above != host else None)
            if t1s
            else Tier(down=down)
        )
        t1 = Tier() if t1s and not t2s else None
        if t2s:
            t1 = Tier(down=plane.t0s_of_pod * plane.bundle, up=t1_up, bundle=plane.core_bundle,
                      up_gbps=core if core != above else None)  # fmt: skip
        return Plane(host_gbps=host, t0=t0, t1=t1, t2=Tier() if t2s else None)

    def _gbps(self, switches: Iterable[str], towards: Callable[[int], bool]) -> float:
        ends = ((name, port) for name in switches for port in self.seen.switches[name].ports)
        return self._gbps_of(
            end for end in ends if end in self.seen.cables and towards(self.tier[self.seen.cables[end][0]])
        )

    def _gbps_of(self, ends: Iterable[End]) -> float:
        """Return the rate that most of some ports have; 0 if nobody said."""
        rates = Counter(self.seen.switches[name].ports[port].gbps for name, port in ends)
        rates.pop(0, None)
        return max(rates, key=rates.__getitem__, default=0)

    def _compare(self, formed: Formed) -> None:
        """Give ports their numbers; `IrregularError` names the first cable that is missing or too many."""
        topology, name = formed.topology, formed.switches
        nics = topology.nics
        planned: dict[tuple[int, int], list[int]] = defaultdict(list)
        for link in range(topology.links):
            here, there = int(topology.link_source[link]), int(topology.link_destination[link])
            if here < nics:
                end = formed.nics[here][int(topology.link_plane[link])]
                if name[there - nics] != end[0]:
                    raise IrregularError(f"the NIC at {end[0]}:{end[1]} would be at {name[there - nics]}")
                formed.ports[there, int(topology.link_port[topology.link_reverse[link]])] = end[1]
            elif there >= nics and _is_up(topology, link):
                planned[here, there].append(link)
        for (here, there), links in planned.items():
            below, above = name[here - nics], name[there - nics]
            found = sorted(self.between.get((below, above), ()), key=lambda ports: self.place[below][ports[0]])
            if len(found) != len(links):
                raise IrregularError(f"{len(found)} cables join {below} and {above}; {len(links)} would be regular")
            for link, (port, far) in zip(links, found, strict=True):
                formed.ports[here, int(topology.link_port[link])] = port
                formed.ports[there, int(topology.link_port[topology.link_reverse[link]])] = far
        if 2 * sum(map(len, planned.values())) != len(self.seen.cables):
            raise IrregularError(
                f"{len(self.seen.cables) // 2} cables join switches; regular would be {sum(map(len, planned.values()))}"
            )


def _is_up(topology: Topology, link: int) -> bool:
    here, there = int(topology.link_source[link]), int(topology.link_destination[link])
    if topology.link_tier[link] == LinkTier.LONG:
        return here < there
    return bool(topology.node_tier[here] < topology.node_tier[there])


def _by_name(nics: dict[End, SeenNicPort], plane_of: dict[str, int]) -> dict[str, list[End]]:
    """Return the ports of each NIC by its name; of a machine with several ports in a plane, NIC by NIC."""
    machines: dict[str, dict[int, list[End]]] = defaultdict(lambda: defaultdict(list))
    for end, nic in nics.items():
        machines[nic.name][plane_of[end[0]]].append(end)
    found: dict[str, list[End]] = defaultdict(list)
    for machine, planes in machines.items():
        for ends in planes.values():
            ends.sort(key=lambda end: natural(nics[end].interface))
            for index, end in enumerate(ends):
                found[machine if max(map(len, planes.values())) == 1 else f"{machine}-n{index}"].append(end)
    return found


def _only(values: Iterable[int], what: str) -> int:
    found = Counter(values)
    if len(found) > 1:
        raise IrregularError(f"unlike numbers of {what}: {', '.join(str(each) for each in sorted(found))}")
    return next(iter(found))
