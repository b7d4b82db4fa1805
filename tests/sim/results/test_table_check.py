"""The loop's arithmetic against the fabric's uSID tables, and what is said when one entry is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmrc.errors import ConfigError, MrcError
from openmrc.fabric.addressing.sid_tables import Action, Tables, build_tables
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import World, prepare
from openmrc.sim.results.table_check import check, flights_of
from openmrc.sim.scenario.description import load as load_scenario
from openmrc.sim.simulate import simulate
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from tests.sim.small import leaf_spine, three_tiers

FABRICS = Path(__file__).parents[3] / "scenarios" / "fabrics"


def world_of(topology: Topology) -> World:
    nic = np.arange(topology.nics)
    near, far = (nic + 1) % topology.nics, (nic + topology.nics // 2) % topology.nics
    return prepare(topology, traffic(np.tile(nic, 2), np.concatenate([near, far]), 100_000), MrcTransport(evs=16))


@pytest.mark.parametrize("name", ["lab.yaml", "lab-slow.yaml", "rails.yaml", "two-sites.yaml"])
def test_shipped_fabrics_agree_bundles_rails_and_sites_included(name: str) -> None:
    topology = build(load(FABRICS / name))
    world = world_of(topology)
    done = check(topology, world.network, flights_of(world.state.engine))
    assert done.pairs >= topology.nics
    assert done.evs == len(world.state.engine.evs)
    assert done.hops >= done.evs


def test_three_tiers_agree() -> None:
    topology = three_tiers()
    world = world_of(topology)
    done = check(topology, world.network, flights_of(world.state.engine))
    assert (done.pairs, done.evs) == (48, len(world.state.engine.evs))


def changed(tables: Tables, row: int, **columns: int) -> Tables:
    copy = tables.rows(np.arange(len(tables)))
    for name, value in columns.items():
        getattr(copy, name)[row] = value
    return copy


def test_a_changed_entry_is_found_and_named_with_switch_and_ev() -> None:
    topology = leaf_spine(hosts=16, down=4, planes=2)
    world = world_of(topology)
    plan = usid_plan(topology)
    tables = build_tables(plan)
    routes = np.flatnonzero((tables.action == Action.ROUTE) & (tables.switch == topology.node_named("p1-t0-02")))
    row = int(routes[tables.port[routes] == 5][0])  # towards a T1
    said = (
        r"EV 0x[0-9a-f]+ of h\d+ to h\d+ on plane 1 .*: p1-t0-02 has the entry 'fcbb:bb01.* route 6' for uSID 2001, "
        r"the simulator leaves by port 5"
    )
    with pytest.raises(MrcError, match=said):
        check(topology, world.network, flights_of(world.state.engine), changed(tables, row, port=6))


def test_a_missing_entry_is_named_too() -> None:
    topology = leaf_spine(hosts=16, down=4)
    world = world_of(topology)
    tables = build_tables(usid_plan(topology))
    row = np.flatnonzero((tables.switch == topology.node_named("p0-t1-01")) & (tables.action == Action.ROUTE))[0]
    with pytest.raises(MrcError, match="p0-t1-01 has no entry fcbb:bb00:1000::/48"):
        check(
            topology, world.network, flights_of(world.state.engine), tables.rows(np.delete(np.arange(len(tables)), row))
        )


STEPS = """
name: checked
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: mrc, settings: {evs: 16}}
workloads: [{kind: permutation, size: 20KB}]
check_tables: true
"""


def test_a_run_says_how_many_it_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from openmrc.report.terminal import show
    from openmrc.sim.results.summary import summary

    (tmp_path / "s.yaml").write_text(STEPS)
    result = summary(simulate(load_scenario(tmp_path / "s.yaml")))
    assert result["tables_checked"]["pairs"] == 32  # data one way, what answers it the other
    assert result["tables_checked"]["evs"] == 2 * 16 * (16 + 4), "in rotation, and in reserve"
    show(result, None)
    assert "640 EVs of 32 NIC pairs" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("transport", ["{name: uet}", "{name: roce}", "{name: mrc, settings: {routing: 1}}"])
def test_switches_that_hash_have_no_tables_to_compare(transport: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STEPS.replace("{name: mrc, settings: {evs: 16}}", transport))
    with pytest.raises(ConfigError, match="check_tables"):
        simulate(load_scenario(tmp_path / "s.yaml"))
