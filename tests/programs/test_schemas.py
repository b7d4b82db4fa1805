from pathlib import Path

import pytest

from openmrc.programs.schemas import PRINTED, encoded, schema

FOLDER = Path(__file__).parents[2] / "docs" / "schema"


@pytest.mark.parametrize("name", PRINTED)
def test_the_published_schema_is_current(name: str) -> None:
    """Renew with `python -m openmrc.programs.schemas docs/schema`."""
    assert (FOLDER / f"{name}.schema.json").read_bytes() == encoded(name)


def test_perftest_keys_are_in_the_schema() -> None:
    parts = schema("perf")["$defs"]
    assert {"MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate", "t_min", "t_max", "t_typical", "t_avg",
            "t_stdev", "t_99"} <= set(parts["PerfResult"]["properties"])  # fmt: skip
    assert {"test_info", "results", "mrc"} == set(parts["PerfReport"]["properties"])
