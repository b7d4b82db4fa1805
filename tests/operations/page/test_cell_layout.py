"""Cells of fabrics: each link in one, few enough for a page."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.base.shipped import find
from openmrc.fabric.model.build import build
from openmrc.fabric.model.topology import Topology
from openmrc.operations.page.cell_layout import MOST_CELLS, cells_of
from openmrc.sim.scenario.description import load


def topology_of(name: str) -> Topology:
    from openmrc.fabric.model.build import load as load_fabric

    return build(load_fabric(find(name)))


def check(topology: Topology) -> None:
    layout = cells_of(topology)
    assert len(np.unique(layout.links)) == len(layout.links) == topology.links // 2
    both = np.concatenate([layout.links, topology.link_reverse[layout.links]])
    assert len(np.unique(both)) == topology.links
    assert sum(grid.links for grid in layout.grids) == len(layout.links)
    assert sum(grid.rows * grid.columns for grid in layout.grids) == len(layout.counts)
    for grid in layout.grids:
        assert grid.rows * grid.columns <= MOST_CELLS
        cells = layout.counts[grid.first_cell : grid.first_cell + grid.rows * grid.columns]
        assert cells.sum() == grid.links
        assert cells.max() <= grid.links_per_cell
    for cell in (0, len(layout.counts) - 1):
        assert len(layout.of_cell(cell)) == layout.counts[cell]


@pytest.mark.parametrize("name", ["gpus-1024", "rails", "two-sites", "fat-tree", "irregular", "lab"])
def test_every_link_of_a_fabric_is_in_one_cell(name: str) -> None:
    check(topology_of(name))


@pytest.mark.exhaustive
def test_131072_nics_fit_a_page() -> None:
    check(topology_of("paper-131072"))


def test_a_small_fabric_has_a_cell_for_each_link() -> None:
    scenario = load(find("demo"))
    assert not isinstance(scenario.fabric, str)
    layout = cells_of(build(scenario.fabric))
    assert {grid.links_per_cell for grid in layout.grids} == {1}
