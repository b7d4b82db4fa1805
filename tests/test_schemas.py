"""The published schemas against jsonschema: what a program reads is valid, what it refuses for its keys is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from openmrc.base.documents import schema_text
from spec.schemas import SCHEMAS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "schema"
SHIPPED = sorted([*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")])


def published(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}.schema.json").read_text("utf-8"))
    return schema


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_current(name: str) -> None:
    """Renew with `python -m spec.schemas schema`."""
    assert (FOLDER / f"{name}.schema.json").read_text("utf-8") == schema_text(SCHEMAS[name])
    jsonschema.Draft202012Validator.check_schema(published(name))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_shipped_file_names_the_schema_that_it_follows(path: Path) -> None:
    text = path.read_text("utf-8")
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named is not None
    schema = json.loads((path.parent / named[1]).read_text("utf-8"))
    jsonschema.validate(yaml.safe_load(text), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text) | {"no_such_key": 1}, schema)


def test_perftest_keys_are_in_the_schema() -> None:
    parts = published("perf")["$defs"]
    assert {"MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate", "t_min", "t_max", "t_typical", "t_avg",
            "t_stdev", "t_99"} <= set(parts["PerfResult"]["properties"])  # fmt: skip
    assert {"test_info", "results", "mrc"} == set(parts["PerfReport"]["properties"])
