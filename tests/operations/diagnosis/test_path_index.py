"""The index of paths, against the ends and ports of the links that it names."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from openmrc.fabric.addressing.paths import choices, path
from openmrc.operations.diagnosis.path_index import PathIndex
from tests.fabric.small_fabrics import SMALL, plan


@pytest.mark.parametrize("name", SMALL)
def test_the_links_of_a_path_join_its_nodes_also_where_a_switch_has_ports_without_a_cable(name: str) -> None:
    made = plan(name)
    topology, index = made.topology, PathIndex(made)
    for plane, shape in enumerate(topology.planes):
        for source, destination in itertools.permutations(range(topology.nics), 2):
            for choice in choices(shape, source, destination):
                way = path(made, source, destination, choice)
                links = index.links(plane, source, destination, way.address)
                assert links is not None
                at = np.array(links) + shape.host_up
                assert topology.link_source[at].tolist() == list(way.nodes[:-1])
                assert topology.link_port[at].tolist() == list(way.ports)
                assert topology.link_destination[at].tolist() == list(way.nodes[1:])
