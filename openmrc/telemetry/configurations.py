"""Configurations of other programs for these metrics: what `mrc metrics --show` prints."""

from __future__ import annotations

import json
from pathlib import Path

from openmrc.telemetry.dashboard import dashboard
from openmrc.telemetry.metric_table import as_markdown

_FOLDER = Path(__file__).parent / "shipped"


def configuration(name: str) -> str:
    """Return alert rules, the Grafana dashboard, a Prometheus or gnmic configuration, or the table of metrics."""
    if name == "dashboard":
        return json.dumps(dashboard(), indent=1)
    if name == "table":
        return as_markdown()
    return (_FOLDER / f"{name}.yaml").read_text("utf-8").rstrip()
