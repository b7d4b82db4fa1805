"""Topology files of the htsim simulator (`.topo`), read into the same description.

The format and its checks follow the reader of github.com/ultraethernet/uet-htsim (fat_tree_topology.cpp): one
`KEY VALUE` a line, keys in any case, a header (`Nodes`, `Tiers`, `Podsize`), then one section a tier. Its derivation
is integer arithmetic over capacities; what it would round silently is refused here, with the line.
"""

from pathlib import Path
from typing import NoReturn

from openmrc.base.documents import read_text
from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.shape import check

_HEADER = ("nodes", "tiers", "podsize")
_KEYS = (
    "downlink_speed_gbps",
    "radix_down",
    "radix_up",
    "oversubscribed",
    "bundle",
    "downlink_latency_ns",
    "switch_latency_ns",
    "queue_up",
    "queue_down",
)

_MOST_BYTES = 1 << 20  # a file has some thirty lines
_LATENCY_NS = 1000  # a link without a latency in the file: the reader's -hop_latency default, 1 us

Section = dict[str, tuple[int, int]]  # key -> (value, line)


def read_topo(path: str | Path) -> Fabric:
    """Read a `.topo` file; a `ConfigError` names file, line, key and what was expected."""
    return parse_topo(read_text(path, _MOST_BYTES, "ascii"), str(path))


def parse_topo(text: str, source: str) -> Fabric:
    """Turn the text of a `.topo` file into a single-plane fabric."""
    header, tiers = _sections(text, source)
    nodes, height, pod = (_header(header, key, source) for key in _HEADER)
    if height not in (2, 3):
        raise ConfigError(f"{source}:{header['tiers'][1]}: Tiers {height}; 2 or 3 are allowed")
    for tier in range(height):
        if tier not in tiers:
            raise ConfigError(f"{source}: section `Tier {tier}` is missing; {height} tiers need 0 to {height - 1}")
    if extra := [tier for tier in tiers if tier >= height]:
        raise ConfigError(f"{source}: section `Tier {extra[0]}`, but the header says Tiers {height}")
    sections = [tiers[tier] for tier in range(height)]
    counts = _Counts(source, nodes, pod, sections)
    fabric = Fabric(name=Path(source).stem, hosts=Hosts(count=nodes), planes=(counts.plane(),))
    check(fabric, source)
    return fabric


def _sections(text: str, source: str) -> tuple[Section, dict[int, Section]]:
    header: Section = {}
    tiers: dict[int, Section] = {}
    current: Section | None = None
    for line, raw in enumerate(text.splitlines(), start=1):
        if not raw.strip() or raw.startswith("#"):
            continue
        key, value = _pair(raw, line, source)
        if key == "tier":
            if value in tiers or value not in (0, 1, 2):
                why = "is given twice" if value in tiers else "is not 0, 1 or 2"
                raise ConfigError(f"{source}:{line}: Tier {value} {why}")
            current = tiers.setdefault(value, {})
            continue
        into = header if current is None else current
        allowed = _HEADER if current is None else _KEYS
        if key not in allowed:
            raise ConfigError(f"{source}:{line}: unknown key {key!r}; allowed here: {', '.join(allowed)}, tier")
        if key in into:
            raise ConfigError(f"{source}:{line}: {key!r} is given twice (first in line {into[key][1]})")
        into[key] = (value, line)
    return header, tiers


def _pair(raw: str, line: int, source: str) -> tuple[str, int]:
    tokens = raw.split()
    if len(tokens) != 2:
        raise ConfigError(f"{source}:{line}: {raw.strip()!r}; expected KEY NUMBER")
    if not tokens[1].isdigit() or len(tokens[1]) > 18:
        raise ConfigError(f"{source}:{line}: {tokens[0]} {tokens[1]!r}; expected a whole number, 0 or more")
    return tokens[0].lower(), int(tokens[1])


def _header(header: Section, key: str, source: str) -> int:
    value, line = header.get(key, (0, 0))
    if value < 1:
        where = f"{source}:{line}" if line else source
        raise ConfigError(f"{where}: header `{key.capitalize()}` is {'0' if line else 'missing'}; it must be positive")
    return value


class _Counts:
    """Work out switches and links as htsim does, and refuse where its divisions leave a rest."""

    def __init__(self, source: str, nodes: int, pod: int, sections: list[Section]) -> None:
        self.source = source
        self.nodes = nodes
        self.pod = pod if len(sections) == 3 else nodes
        self.sections = sections
        if len(sections) == 2 and pod != nodes:
            raise ConfigError(f"{source}: Podsize {pod}; with two tiers the only pod has all {nodes} nodes")

    def value(self, tier: int, key: str, default: int | None = None) -> int:
        section = self.sections[tier]
        if key in section:
            value, line = section[key]
            if value < 1 and key not in ("downlink_latency_ns", "switch_latency_ns", "queue_up", "queue_down"):
                raise ConfigError(f"{self.source}:{line}: {key} {value}; a positive number is needed")
            return value
        if default is None:
            raise ConfigError(f"{self.source}: tier {tier} has no {key}")
        return default

    def refuse(self, tier: int, key: str, why: str) -> NoReturn:
        line = self.sections[tier].get(key, (0, 0))[1]
        raise ConfigError(f"{self.source}:{line}: {why}" if line else f"{self.source}: {why}")

    def exact(self, number: int, by: int, tier: int, key: str, what: str) -> int:
        if number % by or number < by:
            self.refuse(tier, key, f"{what}: {number} is not a positive multiple of {by}")
        return number // by

    def speed(self, tier: int) -> int:
        return self.value(tier, "downlink_speed_gbps")

    def plane(self) -> Plane:
        height = len(self.sections)
        if "radix_up" in self.sections[height - 1]:
            self.refuse(height - 1, "radix_up", "radix_up on the top tier; nothing is above it")
        if self.value(0, "bundle", 1) != 1:
            self.refuse(0, "bundle", "bundle of tier 0 must be 1")
        down = self.value(0, "radix_down")
        tors = self.exact(self.pod, down, 0, "radix_down", "nodes of a pod over radix_down of tier 0")
        pods = self.exact(self.nodes, self.pod, 0, "radix_down", "Nodes over Podsize")
        up = self.tor_uplinks(down, tors, pods)
        t1, t2 = self.tier(1), None
        if height == 3:
            t1 = self.tier(1, down=self.value(1, "radix_down"), up=self.agg_uplinks(up, pods))
            t2 = self.tier(2)
        gbps, link_ns = self.speed(0), self.value(0, "downlink_latency_ns", _LATENCY_NS)
        return Plane(t0=self.tier(0, down=down, up=up), t1=t1, t2=t2, host_gbps=gbps, host_link_ns=link_ns)

    def tor_uplinks(self, down: int, tors: int, pods: int) -> int:
        over, up = self.value(0, "oversubscribed", 1), self.value(0, "radix_up")
        if down // up != over:
            self.refuse(0, "radix_up", f"radix_down / radix_up of tier 0 is {down}/{up}, oversubscribed says {over}")
        uplink = self.speed(1) * over
        total = self.exact(self.nodes * self.speed(0), uplink, 0, "radix_up", "capacity of the nodes over an uplink's")
        radix, bundle = self.value(1, "radix_down"), self.value(1, "bundle", 1)
        aggs = self.exact(total, pods * radix, 1, "radix_down", "uplinks of the ToRs over pods x radix_down of tier 1")
        if aggs * bundle != up:
            made = f"{aggs} aggregation switches a pod x bundle {bundle} are {aggs * bundle}"
            self.refuse(0, "radix_up", f"radix_up {up} of tier 0, but {made}")
        if tors * bundle != radix:
            made = f"{tors} ToRs a pod x bundle {bundle} are {tors * bundle}"
            self.refuse(1, "radix_down", f"radix_down {radix} of tier 1, but {made}")
        return up

    def agg_uplinks(self, tor_up: int, pods: int) -> int:
        over, up, bundle = self.value(1, "oversubscribed", 1), self.value(1, "radix_up"), self.value(2, "bundle", 1)
        capacity = self.nodes // self.value(0, "radix_down") * tor_up * self.speed(1)
        what = "capacity of the aggregation tier over a core link's"
        total = self.exact(capacity, self.speed(2) * over, 1, "radix_up", what)
        radix = self.value(2, "radix_down")
        cores = self.exact(total, radix, 2, "radix_down", "core links over radix_down of tier 2")
        aggs = tor_up // self.value(1, "bundle", 1)
        if self.exact(cores * bundle, aggs, 2, "radix_down", "cores x bundle over aggregation switches a pod") != up:
            made = f"{cores} cores x bundle {bundle} / {aggs} are {cores * bundle // aggs}"
            self.refuse(1, "radix_up", f"radix_up {up} of tier 1, but {made}")
        if pods * bundle != radix:
            self.refuse(2, "radix_down", f"radix_down {radix} of tier 2, but pods x bundle are {pods * bundle}")
        return up

    def tier(self, tier: int, down: int | None = None, up: int | None = None) -> Tier:
        """Describe one tier; rate, bundle and latency of the links above stand in the next section."""
        above = tier + 1 < len(self.sections)
        queue = self.value(tier, "queue_down", 0)
        return Tier(
            down=down,
            up=up,
            bundle=self.value(tier + 1, "bundle", 1) if above else 1,
            up_gbps=self.speed(tier + 1) if above else None,
            up_link_ns=self.value(tier + 1, "downlink_latency_ns", _LATENCY_NS) if above else 0,
            switch_ns=self.value(tier, "switch_latency_ns", 0),
            buffer_kb=-(-queue // 1024),
        )
