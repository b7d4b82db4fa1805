"""Cells of a fabric: which links each shows."""

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.model.topology import LinkTier, Topology
from openmrc.operations.page.pictures import CellGrid

MOST_CELLS = 2304  # of one grid: 48 x 48; more cannot be told apart on a screen
MOST_COLUMNS = 64
_NAMES = {
    LinkTier.HOST: "NIC to T0",
    LinkTier.FABRIC: "T0 to T1",
    LinkTier.CORE: "T1 to T2",
    LinkTier.LONG: "Site to site",
}


@dataclass(frozen=True)
class CellLayout:
    """The grids, and for each upward link the cell it belongs to."""

    grids: list[CellGrid]
    links: Ints  # upward directed links, one per cable
    cell_of: Ints  # by position in `links`
    counts: Ints  # links by cell

    def of_cell(self, cell: int) -> Ints:
        """Return the positions in `links` of a cell's links."""
        found: Ints = np.flatnonzero(self.cell_of == cell)
        return found


def cells_of(topology: Topology) -> CellLayout:
    """Return a grid for each plane and tier, the hosts' first."""
    up = _upward(topology)
    grids: list[CellGrid] = []
    links, cells, first = [], [], 0
    codes = topology.link_plane[up].astype(np.int64) * 4 + topology.link_tier[up]
    for code in np.unique(codes):
        chosen = up[codes == code]
        plane, tier = int(code) // 4, LinkTier(int(code) % 4)
        grid, cell_of = _grid(topology, chosen, plane, tier, first)
        grids.append(grid)
        links.append(chosen)
        cells.append(cell_of + first)
        first += grid.rows * grid.columns
    all_cells = np.concatenate(cells)
    return CellLayout(grids, np.concatenate(links), all_cells, np.bincount(all_cells, minlength=first))


def _upward(topology: Topology) -> Ints:
    """Return one direction of each cable: from the lower tier; between equal tiers the first of the two."""
    tiers = topology.node_tier.astype(np.int64)
    lower, higher = tiers[topology.link_source], tiers[topology.link_destination]
    numbers = np.arange(topology.links)
    found: Ints = numbers[(lower < higher) | ((lower == higher) & (topology.link_reverse > numbers))]
    return found


def _grid(topology: Topology, links: Ints, plane: int, tier: LinkTier, first: int) -> tuple[CellGrid, Ints]:
    """Return a grid and the cell of each link in it, rows by the lower switch (hosts: by their T0)."""
    lower, upper = topology.link_source[links], topology.link_destination[links]
    by_row, by_column = (upper, lower) if tier == LinkTier.HOST else (lower, upper)
    row = np.unique(by_row, return_inverse=True)[1]
    order = np.lexsort((links, by_column, row))
    position = np.empty(len(links), np.int64)
    starts = np.flatnonzero(np.diff(row[order], prepend=-1))
    position[order] = np.arange(len(links)) - np.repeat(starts, np.diff(np.append(starts, len(links))))
    rows, columns = int(row.max()) + 1, int(position.max()) + 1
    tall, wide = _merged(rows, columns)
    cell = row // tall * -(-columns // wide) + position // wide
    grid = CellGrid(
        name=_NAMES[tier],
        plane=plane,
        rows=-(-rows // tall),
        columns=-(-columns // wide),
        first_cell=first,
        links_per_cell=tall * wide,
        links=len(links),
    )
    return grid, cell


def _merged(rows: int, columns: int) -> tuple[int, int]:
    """Return how many rows and columns one cell stands for."""
    wide = -(-columns // MOST_COLUMNS)
    tall = 1
    while -(-rows // tall) * -(-columns // wide) > MOST_CELLS:
        tall *= 2
    return tall, wide
