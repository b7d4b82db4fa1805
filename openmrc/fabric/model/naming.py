"""Fault targets: names for sets of directed links.

all                           every link
plane 1                       every link of a plane
p0-t1-03, h7, h7-n1           every link of a switch, a host's only NIC, or one of several
h7 port 2                     the cable between a NIC and its T0 in plane 2
p0-t0-00>p0-t1-03             one direction;  <> in place of > : both
4 links of p0-t0-00           its first four uplink cables (of a plane, or all: between T0 and T1)
3 random links of plane 1     drawn with the run's seed
20 host links of plane 1      of one tier: host, fabric (T0 - T1), core (T1 - T2) or long
"""

import re

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.topology import LinkTier, NodeKind, Topology

_PLANE = re.compile(r"plane (\d+)")
_PORT = re.compile(r"(\S+) port (\d+)")
_SOME = re.compile(r"(?:(\d+) )?(random )?(?:(host|fabric|core|long) )?links of (.+)")


def links_at(topology: Topology, where: str, seed: int = 0) -> Ints:
    """Return the directed links of a target; ConfigError names the valid ones."""
    if match := _SOME.fullmatch(where):
        return _some(topology, where, match, seed)
    if where == "all":
        return np.arange(topology.links)
    if match := _PLANE.fullmatch(where):
        return _of_plane(topology, int(match[1]))
    if match := _PORT.fullmatch(where):
        return _of_port(topology, match[1], int(match[2]))
    if "<>" in where:
        forth = _between(topology, *where.split("<>", 1))
        return np.concatenate([forth, topology.link_reverse[forth]])
    if ">" in where:
        return _between(topology, *where.split(">", 1))
    out = _from(topology, topology.node_named(where))
    return np.concatenate([out, topology.link_reverse[out]])


def uplinks(topology: Topology, node: int) -> Ints:
    """Return a node's directed links to the tier above, by port."""
    out = _from(topology, node)
    higher: Ints = out[topology.node_tier[topology.link_destination[out]] > topology.node_tier[node]]
    return higher


def _from(topology: Topology, node: int) -> Ints:
    first, out = topology.outgoing
    return out[first[node] : first[node + 1]]


def _of_plane(topology: Topology, plane: int) -> Ints:
    links = np.flatnonzero(topology.link_plane == plane)
    if not len(links):
        raise ConfigError(f"plane {plane} does not exist; planes are 0..{int(topology.link_plane.max())}")
    return links


def _of_port(topology: Topology, name: str, port: int) -> Ints:
    nic = topology.node_named(name)
    out = _from(topology, nic)
    ports = out[topology.link_port[out] == port]
    if topology.node_kind[nic] != NodeKind.NIC or not len(ports):
        raise ConfigError(f"expected a NIC and one of its ports, 0..{len(out) - 1}")
    return np.concatenate([ports, topology.link_reverse[ports]])


def _between(topology: Topology, source: str, destination: str) -> Ints:
    out = _from(topology, topology.node_named(source))
    found: Ints = out[topology.link_destination[out] == topology.node_named(destination)]
    if not len(found):
        raise ConfigError(f"no link joins {source!r} and {destination!r}")
    return found


def _some(topology: Topology, where: str, match: re.Match[str], seed: int) -> Ints:
    """Return both directions of some upward cables of a target."""
    count, random, tier, place = match.groups()
    cables = _upward(topology, place, tier)
    wanted = int(count) if count else len(cables)
    if not len(cables):
        raise ConfigError(f"{place} has no {tier or 'upward'} links")
    if not 1 <= wanted <= len(cables):
        raise ConfigError(f"expected a number in 1..{len(cables)}, the number of {tier or 'upward'} links")
    if random:
        cables = np.sort(np.random.default_rng([seed, *where.encode()]).choice(cables, wanted, replace=False))
    chosen = cables[:wanted]
    return np.concatenate([chosen, topology.link_reverse[chosen]])


def _upward(topology: Topology, place: str, tier: str | None) -> Ints:
    whole = place == "all" or bool(_PLANE.fullmatch(place))
    if tier is None and not whole:
        return uplinks(topology, topology.node_named(place))
    links = links_at(topology, place)
    up = topology.node_tier[topology.link_source[links]] < topology.node_tier[topology.link_destination[links]]
    # A long link joins two switches of one tier: the direction with the lower number counts as up.
    level = topology.node_tier[topology.link_source[links]] == topology.node_tier[topology.link_destination[links]]
    up |= level & (links < topology.link_reverse[links])
    chosen: Ints = links[up & (topology.link_tier[links] == LinkTier[(tier or "fabric").upper()])]
    return chosen
