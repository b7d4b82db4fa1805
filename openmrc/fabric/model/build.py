"""From a fabric's file to its description and its arrays, and back into a file."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import yaml

from openmrc.base.documents import MOST_DUMP_BYTES, read_text
from openmrc.base.shipped import find
from openmrc.base.yaml_file import Where, decode_placed
from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric, IrregularLink
from openmrc.fabric.model.htsim import read_topo
from openmrc.fabric.model.regular import build_regular
from openmrc.fabric.model.shape import check
from openmrc.fabric.model.topology import LinkTier, NodeKind, Topology, blank
from openmrc.units import PS_PER_NS


def build_graph(fabric: Fabric) -> Topology:
    """Fill in the nodes (NICs first, else in the file's order) and both directions of each link; names are good."""
    check(fabric, fabric.name)
    nodes = sorted(fabric.nodes, key=lambda node: node.kind != "nic")  # stable: the file's order otherwise
    number = {node.name: index for index, node in enumerate(nodes)}
    cables = [link for link in fabric.links for _ in range(link.count)]
    nics = sum(node.kind == "nic" for node in nodes)
    base = blank(fabric, (), nics, len(nodes), 2 * len(cables))
    topology = replace(base, names=tuple(node.name for node in nodes))
    _init_nodes(topology, fabric, number)
    used = [0] * len(nodes)
    for index, cable in enumerate(cables):
        _init_cable(topology, index, cable, number, used)
    return topology


def _init_nodes(topology: Topology, fabric: Fabric, number: dict[str, int]) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for node in fabric.nodes:
        if node.kind == "nic":
            continue
        at = number[node.name]
        topology.node_kind[at] = NodeKind.SWITCH
        topology.node_tier[at], topology.node_plane[at] = node.tier, node.plane
        topology.node_index[at] = seen[node.plane, node.tier]
        topology.node_delay[at] = node.switch_ns * PS_PER_NS
        seen[node.plane, node.tier] += 1


def _init_cable(topology: Topology, index: int, cable: IrregularLink, number: dict[str, int], used: list[int]) -> None:
    ends = [number[cable.a], number[cable.b]]
    tiers = sorted(int(topology.node_tier[end]) for end in ends)
    for way in (0, 1):
        link = 2 * index + way
        source, destination = ends[way], ends[1 - way]
        topology.link_source[link], topology.link_destination[link] = source, destination
        topology.link_port[link] = used[source]
        used[source] += 1
        topology.link_rate[link] = round(cable.gbps * 1e9)
        topology.link_delay[link] = cable.link_ns * PS_PER_NS
        topology.link_buffer[link] = cable.buffer_kb * 1024
        topology.link_plane[link] = max(int(topology.node_plane[end]) for end in ends)
        topology.link_tier[link] = LinkTier.HOST if tiers[0] < 0 else min(3, max(1, tiers[1]))
        topology.link_reverse[link] = link ^ 1


def build(fabric: Fabric) -> Topology:
    """Turn a description into arrays."""
    return build_regular(fabric) if fabric.is_regular else build_graph(fabric)


def load(path: str | Path) -> Fabric:
    """Read a fabric, by its ending a `.topo` file of htsim, JSON or YAML, and check that its numbers add up."""
    return load_placed(path)[0]


def load_placed(path: str | Path) -> tuple[Fabric, Where]:
    """Read a fabric, and return with it a function that gives file and line of a place in it, for later errors."""
    path = find(path)
    if path.suffix == ".topo":
        return read_topo(path), lambda place, said="": str(path)
    if path.suffix == ".json":
        fabric = _from_json(path)
        check(fabric, str(path))
        return fabric, lambda place, said="": str(path)
    fabric, where = decode_placed(read_text(path), Fabric, str(path))
    check(fabric, where)
    return fabric, where


def _from_json(path: Path) -> Fabric:
    try:
        return msgspec.json.decode(read_text(path, MOST_DUMP_BYTES), type=Fabric)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{path}: not a fabric: {error}") from None


def save(fabric: Fabric, path: Path, about: str) -> None:
    """Write a fabric as YAML, see `text_of`."""
    path.write_text(text_of(fabric, about), encoding="utf-8")


class _Hexadecimal(int):
    """A number that is written as people read it in an address."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _Hexadecimal, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:int", f"{value:#06x}")
)


def text_of(fabric: Fabric, about: str) -> str:
    """Return a fabric as YAML, what it says by default left out; `about` becomes a comment above it."""
    content = {key: value for key, value in msgspec.to_builtins(fabric).items() if value != {}}
    for part in (content.get("usid", {}), *content.get("found", ())):
        for key, value in part.items():
            if isinstance(value, int) and not isinstance(value, bool):
                part[key] = _Hexadecimal(value)
            elif key in ("usids", "downlinks", "others"):
                part[key] = [_Hexadecimal(sid) for sid in value]
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)
    return f"# {about}\n{text}"


def json_of(fabric: Fabric) -> str:
    """Return a fabric as JSON, what it says by default left out: for thousands of switches YAML takes minutes."""
    return msgspec.json.format(msgspec.json.encode(fabric), indent=1).decode() + "\n"
