"""Alert rules fire, the dashboard asks for metrics that exist, switches use the names of hosts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from openmrc.telemetry.metric_table import configuration
from tests.needs import require
from tests.programs.in_process import run_here
from tests.telemetry.snapshots_of_tests import metric_names

METRIC = re.compile(r"\bmrc_[a-z0-9_]+")
RULES = yaml.safe_load(configuration("rules"))["groups"][0]["rules"]
LABELS = 'device="mrc_10.0.0.1",pid="7"'
PORT, OTHER_PORT = f'{LABELS},port="2"', f'{LABELS},port="1"'

# alert -> (series with their values from 0 s, a step each 5 s), time at which it fires, time at which it does not yet
FIRED: dict[str, tuple[list[tuple[str, str]], str, str]] = {
    "MrcEndpointGone": ([('up{job="mrc",instance="h0:9400"}', "1x5 0x60")], "2m", "30s"),
    "MrcPortDown": ([(f"mrc_port_state_id{{{PORT}}}", "4x5 1x60")], "1m", "25s"),
    "MrcPortFlapping": ([(f"mrc_port_link_downed_total{{{PORT}}}", "0x20 0+1x20 20x200")], "4m", "1m"),
    "MrcPortSilent": ([(f"mrc_port_silent{{{PORT}}}", "0x5 1x60")], "1m", "25s"),
    "MrcPathsRetired": (
        [
            (f'mrc_port_evs{{{PORT},state="GOOD"}}', "32x5 20x60"),
            (f'mrc_port_evs{{{PORT},state="ASSUMED_BAD"}}', "0x5 12x60"),
        ],
        "2m",
        "45s",
    ),
    "MrcPathsDenied": ([(f'mrc_port_evs{{{PORT},state="DENIED"}}', "4x800")], "40m", "20m"),
    "MrcGreyLoss": (
        [
            *((f"mrc_port_false_losses_total{{{port}}}", "0x400") for port in (PORT, OTHER_PORT)),
            *((f"mrc_port_packets_transmitted_total{{{port}}}", "0+10000x400") for port in (PORT, OTHER_PORT)),
            (f"mrc_port_lost_packets_total{{{OTHER_PORT}}}", "0x400"),
            (f"mrc_port_lost_packets_total{{{PORT}}}", "0+5x400"),
        ],
        "12m",
        "4m",
    ),
    "MrcRetransmissions": (
        [
            (f"mrc_port_retransmitted_packets_total{{{PORT}}}", "0+50x200"),
            (f"mrc_port_packets_transmitted_total{{{PORT}}}", "0+1000x200"),
        ],
        "3m",
        "30s",
    ),
    "MrcTimeouts": ([(f"mrc_local_ack_timeouts_total{{{LABELS}}}", "0+20x200")], "3m", "30s"),
    "MrcQueuePairError": ([(f"mrc_queue_pair_errors_total{{{LABELS}}}", "0x20 1x100")], "2m30s", "1m"),
    "MrcReceiverTooSlow": ([(f"mrc_port_discards_received_total{{{PORT}}}", "0x20 0+10x100")], "5m", "1m"),
    "MrcWrongSource": ([(f"mrc_wrong_source_total{{{LABELS}}}", "0x20 3x100")], "2m30s", "1m"),
    "MrcEventsDropped": ([(f"mrc_events_dropped_total{{{LABELS}}}", "0x20 3x100")], "2m30s", "1m"),
}


def test_every_alert_is_fired_here_and_has_a_runbook() -> None:
    assert {rule["alert"] for rule in RULES} == FIRED.keys()
    for rule in RULES:
        assert rule["annotations"]["runbook"].endswith((".", "?", "host."))
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(METRIC.findall(rule["expr"])) <= metric_names()


@pytest.mark.needs("promtool")
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    require("promtool")
    (tmp_path / "rules.yaml").write_text(configuration("rules"))
    tests = []
    for name, (series, fires_at, quiet_at) in FIRED.items():
        (rule,) = [each for each in RULES if each["alert"] == name]
        tests.append(
            {
                "interval": "5s",
                "name": name,
                "input_series": [{"series": each, "values": values} for each, values in series],
                "promql_expr_test": [
                    _count(name, fires_at, 1),
                    _count(name, quiet_at, 0),
                ],
            }
        )
        assert rule
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "5s", "tests": tests})
    )
    found = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "tests.yaml")], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stdout + found.stderr


def _count(name: str, at: str, count: int) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": count}] if count else []
    return {
        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
        "eval_time": at,
        "exp_samples": samples,
    }


def test_the_dashboard_has_panels_that_do_not_overlap_and_ask_for_metrics_that_exist() -> None:
    found = json.loads(configuration("dashboard"))
    assert found["schemaVersion"] >= 36
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    for panel in panels:
        assert panel["type"] == "timeseries"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert set(METRIC.findall(target["expr"])) <= metric_names()


@pytest.mark.needs("promtool")
def test_prometheus_understands_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    require("promtool")
    panels = json.loads(configuration("dashboard"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = [
        {"record": f"panel:{n}", "expr": each.replace("$__rate_interval", "1m").replace("$device", ".*")}
        for n, each in enumerate(expressions)
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    found = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "panels.yaml")], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_switches_get_the_names_of_hosts() -> None:
    text = configuration("gnmic")
    document = yaml.safe_load(text)
    transforms = document["processors"]["named"]["event-strings"]["transforms"]
    assert {each["replace"]["new"] for each in transforms} <= metric_names()
    assert set(document["outputs"]["prometheus"]["event-processors"]) <= document["processors"].keys()


def test_the_command_prints_each_configuration_and_refuses_others() -> None:
    code, out, _ = run_here("metrics", "--show", "rules")
    assert code == 0
    assert yaml.safe_load(out)["groups"]
    assert run_here("metrics", "--show", "nagios")[0] == 2
