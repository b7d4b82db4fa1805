"""Counters of foreign NICs and switches as a fleet, for `mrc map feed`: they are read, and nothing can be denied.

A sample counts since some beginning what was sent over a path, or into a port of a switch, and what of it was lost,
trimmed or marked. It comes as a line of JSON, or as OpenMetrics; a mapping says which of their names are which of ours:

  metrics: {sent: [tx_packets], lost: [retransmits, timeouts]}    # names that are added up
  labels: {source: hostname, destination: peer, plane: port, ev: path_id}
  names: {dgx-01: h0}                                             # of hosts and switches, where they differ
  planes: {mlx5_0: 0, mlx5_1: 1}

A path is `source`, `destination` and either `path`, the carrier's address, or `ev`, a number that contains the plane.
A port is `switch` and `interface`: what arrives there has crossed one direction of one cable. `size` tells classes of
packets apart.

Counters are coarse beside votes of our endpoints: what is lost in one interval may be a burst of congestion. Losses
count only as far as the intervals before had as many, and not at all where more than `CONGESTED` of the packets were
trimmed or marked.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from openmrc.base.yaml_file import decode
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import EvNumbers, path
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.cables.cabled import EndNames
from openmrc.fabric.cables.ports import place_ports
from openmrc.operations.diagnosis.path_index import PathIndex, PathLinks
from openmrc.operations.diagnosis.verdicts import HitEndpoint
from openmrc.operations.fleets.fleet import LateNics, PlaneVotes, Said, TellableFleet

COUNTS = ("sent", "lost", "trimmed", "marked")
PLACES = ("source", "destination", "plane", "ev", "path", "switch", "interface", "size")
CONGESTED = 0.01  # share of packets trimmed or marked; an assumption
MOST_LOST = 50  # packets of a path and interval: more of them, lost together, say no more about where
_BEFORE = 3  # intervals in which losses must have been seen before
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? +([^ ]+)(?: +[^ ]+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class FeedMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the names of a feed translate to those of the fabric; empty: they are the same."""

    metrics: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    names: dict[str, str] = {}
    planes: dict[str, int] = {}

    def counted(self) -> dict[str, list[str]]:
        """Return the counts to which each metric is added, by its name in the feed."""
        found: dict[str, list[str]] = {}
        for count in COUNTS:
            for name in self.metrics.get(count, [count]):
                found.setdefault(name, []).append(count)
        return found

    def places(self, said: dict[str, str]) -> dict[str, str]:
        """Return the places that labels of the feed give, by our names."""
        ours = ((place, self.labels.get(place, place)) for place in PLACES)
        return {place: said[name] for place, name in ours if name in said}


class Sample(NamedTuple):
    """Counters of one path or port since their beginning."""

    key: tuple[tuple[str, str], ...]  # all that tells it from others
    places: dict[str, str]
    counts: dict[str, float]


def load_mapping(file: Path) -> FeedMapping:
    """Read a mapping; ConfigError names what it does not know."""
    found = decode(file, FeedMapping)
    for known, given in ((COUNTS, found.metrics), (PLACES, found.labels)):
        if unknown := sorted(set(given) - set(known)):
            raise ConfigError(f"{file}: {unknown[0]!r}; {', '.join(known)} are known")
    return found


def samples_of_openmetrics(text: str, mapping: FeedMapping) -> Iterator[Sample]:
    """Yield the samples of a page of OpenMetrics or of Prometheus' text format that the mapping knows."""
    counted = mapping.counted()
    found: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line.strip())
        if match is None or match[1] not in counted:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = ((name, re.sub(r"\\(.)", r"\1", said)) for name, said in _LABEL.findall(match[2] or ""))
        counts = found.setdefault(tuple(sorted(labels)), dict.fromkeys(COUNTS, 0.0))
        for count in counted[match[1]]:
            counts[count] += value
    for key, counts in found.items():
        yield Sample(key, mapping.places(dict(key)), counts)


def sample_of_json(line: str, mapping: FeedMapping, source: str) -> tuple[float | None, Sample]:
    """Return time (s) and sample of a line of JSON; ConfigError if it is none."""
    counted, counts = mapping.counted(), dict.fromkeys(COUNTS, 0.0)
    try:
        content = msgspec.json.decode(line, type=dict[str, Any])
        for name, into in counted.items():
            for count in into:
                counts[count] += float(content.get(name, 0))
        at = None if content.get("at") is None else float(content["at"])
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise ConfigError(f"{source}: not an object of counters: {error}") from None
    said = {name: str(value) for name, value in content.items() if name != "at" and name not in counted}
    return at, Sample(tuple(sorted(said.items())), mapping.places(said), counts)


@dataclass
class _Row:
    """A path or port of the fabric, and what its counters said."""

    plane: int
    links: PathLinks  # of a port: the direction of its cable that ends there
    nic: int  # whose path it is; -1: a switch's port
    before: dict[str, float]
    new: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0.0))
    lost: deque[float] = field(default_factory=lambda: deque(maxlen=_BEFORE))


class FeedFleet(TellableFleet):
    """Paths and ports of a fabric, as counters of others show them; each look is an interval."""

    look_s = 0.0  # whoever steps the controller says when an interval is over
    vote_chance = 1e-5  # healthy networks lose less
    vote_burst = 1 << 40

    def __init__(self, plan: UsidPlan, mapping: FeedMapping) -> None:
        self._plan, self._mapping, self._index = plan, mapping, PathIndex(plan)
        self._evs, self._ends = EvNumbers(plan), EndNames(plan.topology, place_ports(plan.topology))
        self._rows: dict[tuple[tuple[str, str], ...], _Row | None] = {}
        self._late = LateNics(len(plan.planes))
        self._lost: dict[tuple[int, PathLinks, int], tuple[int, int]] = {}
        self.unknown: Counter[str] = Counter()  # why samples could not be used

    def take(self, samples: Iterable[Sample]) -> int:
        """Take in samples of an interval; return how many are of the fabric."""
        used = 0
        for sample in samples:
            if sample.key not in self._rows:
                self._rows[sample.key] = self._place(sample)
            elif row := self._rows[sample.key]:
                _count(row, sample.counts)
            used += self._rows[sample.key] is not None
        return used

    def look(self) -> PlaneVotes:
        found, said = PlaneVotes(), dict[int, list[Said]]()
        for row in self._rows.values():
            if row is None or not row.new["sent"] + row.new["lost"]:
                continue
            queued = int(row.new["trimmed"] + row.new["marked"])
            counted, lost = _votes(row)
            said.setdefault(row.nic, []).append((row.plane, row.links, counted, lost, min(counted, queued)))
            before = self._lost.get((row.plane, row.links, row.nic), (0, 0))
            self._lost[row.plane, row.links, row.nic] = before[0] + counted, before[1] + lost
        for each in said.pop(-1, []):
            found.add(*each)
        self._late.add(found, said, {})
        return found

    def hit_by(self, plane: int, links: frozenset[int]) -> list[HitEndpoint]:
        """Return the NICs that lost packets on paths over these links (numbered from the plane's first)."""
        over: dict[int, tuple[int, int]] = {}
        for (where, way, nic), (counted, lost) in self._lost.items():
            if where == plane and nic >= 0 and links.intersection(way):
                before = over.get(nic, (0, 0))
                over[nic] = before[0] + counted, before[1] + lost
        name = self._plan.topology.name
        hit = [
            HitEndpoint(host=name(nic), endpoint="", program="", counted=counted, lost=lost)
            for nic, (counted, lost) in over.items()
            if lost
        ]
        return sorted(hit, key=lambda each: -each.lost)

    def names(self) -> list[str]:
        """Return the NICs whose paths are counted."""
        nics = {row.nic for row in self._rows.values() if row is not None} - {-1}
        return [self._plan.topology.name(nic) for nic in sorted(nics)]

    def _place(self, sample: Sample) -> _Row | None:
        """Find the path or port of a new sample; its counts are the beginning."""
        places = sample.places
        try:
            if "switch" in places:
                plane, links, nic = self._of_port(places["switch"], places.get("interface", ""))
            else:
                plane, links, nic = self._of_path(places)
        except (ConfigError, KeyError, ValueError) as error:
            what = f"no {error.args[0]} in it" if isinstance(error, KeyError) else str(error)
            self.unknown[what] += 1
            return None
        return _Row(plane, links, nic, dict(sample.counts))

    def _named(self, name: str) -> str:
        """Return a host's or switch's name in the fabric: as the mapping has it, else without a port and a domain."""
        bare = name.partition(":")[0]
        ways = (name, bare, bare.partition(".")[0])
        return next((self._mapping.names[each] for each in ways if each in self._mapping.names), ways[-1])

    def _of_port(self, switch: str, interface: str) -> tuple[int, PathLinks, int]:
        """Return the cable's direction into a port."""
        end, topology = self._ends.end(self._named(switch), interface), self._plan.topology
        out = -1 if end is None else int(self._index.cabling.link(np.array(end[0]), np.array(end[1])))
        if out < 0:
            raise ConfigError(f"no port {interface!r} of {switch!r} in the fabric")
        link, plane = int(topology.link_reverse[out]), int(topology.link_plane[out])
        return plane, (link - topology.planes[plane].host_up,), -1

    def _of_path(self, places: dict[str, str]) -> tuple[int, PathLinks, int]:
        topology = self._plan.topology
        source, destination = (topology.node_named(self._named(places[end])) for end in ("source", "destination"))
        if "path" in places:
            said = places["plane"]
            plane = self._mapping.planes[said] if said in self._mapping.planes else int(said)
            links = (
                self._index.links(plane, source, destination, places["path"])
                if 0 <= plane < len(topology.planes)
                else None
            )
            if links is None:
                raise ConfigError(f"{places['path']} is no path of plane {said} from {places['source']}")
            return plane, links, source
        choice = self._evs.choice(int(places["ev"]))
        return choice.plane, self._index.links_of(path(self._plan, source, destination, choice)), source


def _count(row: _Row, counts: dict[str, float]) -> None:
    """Add what is new; counters that went back have begun again."""
    again = any(counts[name] < row.before[name] for name in COUNTS)
    for name in COUNTS:
        row.new[name] += 0 if again else counts[name] - row.before[name]
    row.before = dict(counts)


def _votes(row: _Row) -> tuple[int, int]:
    """Return (delivered and lost, lost) of an interval as far as they count, and begin the next."""
    new, row.new = row.new, dict.fromkeys(COUNTS, 0.0)
    sent = max(new["sent"], new["lost"])
    lasting = min(new["lost"], max(row.lost, default=0.0))
    row.lost.append(new["lost"])
    if new["trimmed"] + new["marked"] > CONGESTED * sent:
        return 0, 0
    share = min(1.0, MOST_LOST / max(lasting, 1.0))
    return round(share * (sent - new["lost"] + lasting)), round(share * lasting)
