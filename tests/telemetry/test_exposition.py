"""The metrics as text: valid OpenMetrics, bounded in series, named as the table says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("prometheus_client")
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from openmrc.telemetry.exposition import openmetrics
from openmrc.telemetry.metric_table import METRICS, MOST_PER_PORT, as_markdown, check_identities
from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot, QpSnapshot
from tests.needs import require
from tests.telemetry.snapshots_of_tests import endpoint, metric_names

PAGE = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")


def families(text: bytes) -> list[Any]:
    return list(text_string_to_metric_families(text.decode()))  # type: ignore[no-untyped-call]


def series(text: bytes) -> int:
    return sum(len(family.samples) for family in families(text))


@pytest.mark.parametrize("planes", [1, 2, 4, 8])
def test_a_nic_has_at_most_forty_series_a_port_however_many_queue_pairs(planes: int) -> None:
    text = openmetrics([endpoint(planes, queue_pairs=500)])
    assert series(text) <= MOST_PER_PORT * planes
    assert b"qpn" not in text
    assert b"ev=" not in text


def test_series_of_queue_pairs_and_evs_exist_only_if_asked_for() -> None:
    text = openmetrics([endpoint(2, queue_pairs=3)], per_queue_pair=True)
    names = {family.name for family in families(text)}
    assert {"mrc_qp_data_transmitted_bytes", "mrc_ev_state"} <= names
    assert text.count(b'mrc_ev_state{device="mrc_10.0.0.1",') == 6


def test_every_name_of_the_text_is_in_the_table_and_every_counter_ends_in_total() -> None:
    found = {sample.name for family in families(openmetrics([endpoint()], True)) for sample in family.samples}
    assert found == metric_names()


def test_values_are_those_of_the_snapshot() -> None:
    samples = [sample for family in families(openmetrics([endpoint(2)])) for sample in family.samples]
    sent = {s.labels["port"]: s.value for s in samples if s.name == "mrc_port_data_transmitted_bytes_total"}
    assert sent == {"1": 10_000.0, "2": 20_000.0}


def test_labels_that_hold_quotes_and_newlines_do_not_break_the_text() -> None:
    text = openmetrics([endpoint(command='a"b\nc\\d')])
    (info,) = [f for f in families(text) if f.name == "mrc_device_info"]
    assert info.samples[0].labels["command"] == 'a"b\nc\\d'


def test_the_page_has_the_table_of_metrics() -> None:
    assert as_markdown() in PAGE, "docs/telemetry.md differs from `mrc metrics --show table`"


@pytest.mark.parametrize("plain", [False, True])
def test_a_name_of_several_endpoints_is_described_once(plain: bool) -> None:
    text = openmetrics([endpoint(2), endpoint(2, device="mrc_10.0.0.2")], True, plain=plain)
    for word in ("HELP", "TYPE"):
        named = [line.split()[2] for line in text.decode().splitlines() if line.startswith(f"# {word} ")]
        assert len(named) == len(set(named)) > 20


@pytest.mark.needs("promtool")
def test_promtool_finds_nothing_to_complain_about() -> None:
    require("promtool")
    text = openmetrics([endpoint(4), endpoint(4, device="mrc_10.0.0.2")], True, plain=True)
    found = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert (found.returncode, found.stderr, found.stdout) == (0, b"", b"")


def test_sums_that_do_not_add_up_are_said_in_development_mode() -> None:
    """As in the sums of `tests/engine/test_counters.py`, which hold at every moment of an endpoint."""
    lost = PortSnapshot(port=1, lost=900, requeued=200, false_losses=300)
    again = PortSnapshot(port=2, retransmitted=700)
    pair = QpSnapshot(qpn=1, waiting=60)
    whole = EndpointSnapshot(device="mrc", pid=1, at=0.0, ports=[lost, again], queue_pairs=[pair], abandoned=40)
    check_identities([whole])
    sends = QpSnapshot(qpn=2, state="RTS", sent_packets=900, acknowledged=500, inflight=340, waiting=60)
    others = EndpointSnapshot(device="mrc", pid=1, at=0.0, queue_pairs=[sends])
    check_identities([others])
    fewer = msgspec.structs.replace(others, queue_pairs=[msgspec.structs.replace(sends, acknowledged=400)])
    with pytest.raises(AssertionError, match="or in flight"):
        check_identities([fewer])
    with pytest.raises(AssertionError, match="lost or requeued"):
        check_identities([msgspec.structs.replace(whole, abandoned=400)])
    script = "from openmrc.telemetry.exposition import openmetrics; from tests.telemetry.snapshots_of_tests import *; "
    script += "openmetrics([EndpointSnapshot(device='mrc', pid=1, at=0.0, abandoned=400)])"
    modes = [subprocess.run([sys.executable, *mode, "-c", script], capture_output=True) for mode in ([], ["-X", "dev"])]
    assert [done.returncode for done in modes] == [0, 1]
    assert b"AssertionError" in modes[1].stderr


def test_names_of_identities_are_those_of_metrics() -> None:
    known = {"endpoint": (*METRICS.port, *METRICS.endpoint), "queue_pair": METRICS.queue_pair}
    for each in METRICS.identity:
        assert {name for names in each.sums for name in names} <= {metric.name for metric in known[each.each]}
