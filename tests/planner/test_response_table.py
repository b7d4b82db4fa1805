"""The table of responses covers what jobs need, carries as stated, and refuses the rest by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import load_parts
from openmrc.planner import response_table
from openmrc.planner.causes import failure_kinds
from openmrc.planner.comparison import TITLES, JobQuestion, situation_of
from openmrc.planner.structure import PRESETS
from tests.planner import small


@pytest.mark.parametrize("model", PRESETS)
@pytest.mark.parametrize("network", list(TITLES))
def test_the_shipped_table_covers_every_network_and_model(network: str, model: str) -> None:
    made = situation_of(JobQuestion(gpus=16384, model=model), network, load_parts())
    kinds = failure_kinds(made)
    assert len(kinds) > 20
    assert all(kind.step >= made.calm_step - 1e-9 and kind.once_s >= 0 for kind in kinds)


def test_the_two_measured_sizes_agree_with_the_rules_that_carry_them_to_larger_ones() -> None:
    """MRC: a lost NIC link is as slow at both sizes; a link above T0 counts by its share of uplinks.

    What noise makes faster than without the failure counts as no slower, as where the table is read. An all-to-all
    meets a dead cable for four to six steps, of which two count as transient here, and its reserve of EVs brings it
    back later, so its lasting cost is no share of uplinks.
    """
    table = response_table.responses()

    def excess(kind: str, nics: int, *names: str) -> float:
        found = [
            max(0.0, row.slow - 1)
            for row in table.rows
            if (row.network, row.kind, row.nics) == ("mrc", kind, nics) and row.collective in names
        ]
        assert len(found) == len(names)
        return sum(found) / len(found)

    every, sustained = ("all_reduce", "all_to_all", "point_to_point"), ("all_reduce", "point_to_point")

    assert excess("nic_link", 64, *every) == pytest.approx(excess("nic_link", 256, *every), abs=0.02)
    share = table.uplinks["64"] / table.uplinks["256"]
    assert excess("fabric_link", 256, *sustained) / excess("fabric_link", 64, *sustained) == pytest.approx(
        share, abs=0.2
    )
    assert excess("two_nics", 64, *every) == pytest.approx(excess("nic_link", 64, *every), abs=0.02)  # two as one


def test_what_was_not_measured_is_refused_by_name() -> None:
    made = small.situation("mrc", small.PARTS)
    table = msgspec.structs.replace(made.table, rows=tuple(row for row in made.table.rows if row.kind != "t1"))
    with pytest.raises(ConfigError, match="does not cover t1 of mrc with all_reduce"):
        failure_kinds(replace(made, table=table))
    with pytest.raises(ConfigError, match="network 'token ring' was not measured; mrc, roce were"):
        failure_kinds(replace(made, network="token ring"))


def test_nics_of_another_rate_are_refused_unless_their_table_is_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NICs of 400G: the table of responses was measured with 800G"):
        situation_of(JobQuestion(gpus=1024, nic_gbps=400.0), "mrc", small.PARTS)
    measured = json.loads(response_table.FILE.read_text()) | {"nic_gbps": 400}
    (tmp_path / "400.json").write_text(json.dumps(measured))
    asked = JobQuestion(gpus=1024, nic_gbps=400.0, responses=str(tmp_path / "400.json"))
    assert situation_of(asked, "mrc", small.PARTS).design.nic_gbps == 400


def test_another_number_of_planes_is_refused_where_a_network_has_many() -> None:
    asked = JobQuestion(gpus=1024, planes=4)
    with pytest.raises(ConfigError, match=r"4 planes: the table of responses was measured with 8, .* mrc depends"):
        situation_of(asked, "mrc", small.PARTS)
    assert situation_of(asked, "roce", small.PARTS).design.planes == 1


def test_a_table_without_the_time_of_a_collective_is_refused_by_name() -> None:
    table = msgspec.structs.replace(small.responses(), healthy=())
    with pytest.raises(ConfigError, match="does not cover mrc with all_reduce"):
        table.congestion("mrc", "all_reduce")


def test_a_failure_above_t0_counts_by_the_share_of_paths_that_it_takes() -> None:
    table = small.responses(fabric_link=1.16)
    assert table.slow("mrc", "all_reduce", "fabric_link", 1 / 16) == pytest.approx(1.16)
    assert table.slow("mrc", "all_reduce", "fabric_link", 1 / 256) == pytest.approx(1.01)


def test_a_hashed_flow_is_as_slow_whatever_share_of_paths_is_left() -> None:
    roce, mrc = (small.situation(name, small.PARTS, fabric_link=1.16) for name in ("roce", "mrc"))
    assert roce.slowed("fabric_link", 1 / 256) == pytest.approx(1 + 0.2 * 0.16)
    assert mrc.slowed("fabric_link", 1 / 256) == pytest.approx(1 + 0.2 * 0.01)


def test_a_broken_table_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"table\.json: Object missing required field"):
        response_table.responses(tmp_path / "table.json")
    whole = json.loads(response_table.FILE.read_text())
    (tmp_path / "other.json").write_text(json.dumps(whole | {"uplinks": {"64": 8}}))
    with pytest.raises(ConfigError, match=r"other\.json: uplinks: none of a T0 among 256 NICs"):
        response_table.responses(tmp_path / "other.json")
    whole["healthy"][0]["took_us"] = 0
    (tmp_path / "zero.json").write_text(json.dumps(whole))
    with pytest.raises(ConfigError, match=r"zero\.json: Expected `float` > 0\.0 - at .*took_us"):
        response_table.responses(tmp_path / "zero.json")
