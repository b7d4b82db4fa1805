"""Heat maps of links, one per tier and direction: utilisation, longest queue, losses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from openmrc.core.arrays import Floats
from openmrc.fabric.model.topology import LinkTier
from openmrc.report import svg
from openmrc.report.page import card
from openmrc.sim.results.samples import LinkGroup
from openmrc.sim.results.summary import SimulationRun
from openmrc.units import PS_PER_S, PS_PER_US

MOST_COLUMNS = 64  # of a map; with more links, a cell shows the highest of several


def link_maps(run: SimulationRun) -> Iterator[str]:
    """Yield maps of utilisation for each tier and direction, then one of the longest queues and one of losses."""
    links, topology = run.results.links, run.topology
    busy = links["data_bytes"].astype(np.float64) * 8 * PS_PER_S / (topology.link_rate.astype(np.float64) * run.span)
    for tier, up in _directions(run):
        yield _map(run, tier, up, busy * 100, 100.0, "% of the rate", "Load of links")
    lost = (links["lost"] + links["dropped"] + links["trimmed"]).astype(np.float64)
    for values, unit, title in (
        (links["peak"] / PS_PER_US, "us", "Longest queue"),
        (lost, "packets", "Packets lost or trimmed"),
    ):
        tier, up = max(_directions(run), key=lambda way: float(values[_rows(run, *way)].max(initial=0.0)))
        if values[_rows(run, tier, up)].any():
            yield _map(run, tier, up, values, float(values[_rows(run, tier, up)].max()), unit, title)


def _directions(run: SimulationRun) -> list[tuple[int, bool]]:
    tier, up = run.topology.link_tier.astype(np.int64), _is_up(run)
    return sorted(
        {(int(each), bool(way)) for each, way in zip(tier.tolist(), up.tolist(), strict=True)},
        key=lambda way: (way[0], not way[1]),
    )


def _is_up(run: SimulationRun) -> NDArray[np.bool_]:
    topology = run.topology
    levels = topology.node_tier[topology.link_source], topology.node_tier[topology.link_destination]
    upwards: NDArray[np.bool_] = (levels[0] < levels[1]) | (
        (levels[0] == levels[1]) & (topology.link_reverse > np.arange(topology.links))
    )
    return upwards


def _rows(run: SimulationRun, tier: int, up: bool) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = (run.topology.link_tier == tier) & (_is_up(run) == up)
    return chosen


def _map(run: SimulationRun, tier: int, up: bool, values: Floats, full: float, unit: str, title: str) -> str:
    topology, chosen = run.topology, _rows(run, tier, up)
    planes = np.unique(topology.link_plane[chosen])
    most = max(int((topology.link_plane[chosen] == plane).sum()) for plane in planes)
    columns = min(MOST_COLUMNS, most)
    cells = np.full((len(planes), columns), np.nan)
    for row, plane in enumerate(planes):
        mine = values[chosen & (topology.link_plane == plane)]
        parts = np.array_split(mine, min(columns, len(mine)))
        cells[row, : len(parts)] = [part.max() for part in parts]
    name = LinkGroup(0, LinkTier(tier), up).name
    shared = -(-most // columns)
    axis = f"{most:,} links {name} in order of their switches" + (
        f"; a cell shows the highest of {shared}" if shared > 1 else ""
    )
    labels = [f"plane {plane}" for plane in planes.tolist()]
    heading = f"{title}, {name.replace('>', ' to ')}"
    return card(heading, svg.heat_map(svg.Heat(heading, axis, labels, cells / (full or 1.0), unit, full)))
