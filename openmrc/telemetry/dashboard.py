"""The Grafana dashboard, built from the names of the metrics."""

from __future__ import annotations

from typing import Any

_WIDTH = 24  # columns of Grafana's grid
_HEIGHT = 8

# title, unit, what each series is called, expressions
_PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Sent by plane",
        "bps",
        (
            (
                "{{device}} port {{port}}",
                "sum by (device, port) (8 * rate(mrc_port_data_transmitted_bytes_total"
                '{device=~"$device"}[$__rate_interval]))',
            ),
        ),
    ),
    (
        "Received by plane",
        "bps",
        (
            (
                "{{device}} port {{port}}",
                "sum by (device, port) (8 * rate(mrc_port_data_received_bytes_total"
                '{device=~"$device"}[$__rate_interval]))',
            ),
        ),
    ),
    (
        "EVs by state",
        "short",
        (("{{state}}", 'sum by (state) (mrc_port_evs{device=~"$device"})'),),
    ),
    (
        "Lost of what was sent",
        "percentunit",
        (
            (
                "{{device}} port {{port}}",
                'rate(mrc_port_lost_packets_total{device=~"$device"}[$__rate_interval])'
                ' / rate(mrc_port_packets_transmitted_total{device=~"$device"}[$__rate_interval])',
            ),
        ),
    ),
    (
        "Ports down or silent",
        "short",
        (
            ("{{device}} port {{port}} down", 'mrc_port_state_id{device=~"$device"} == bool 1'),
            ("{{device}} port {{port}} silent", 'mrc_port_silent{device=~"$device"}'),
        ),
    ),
    (
        "Retransmissions and timeouts",
        "short",
        (
            (
                "{{device}} packets",
                'sum by (device) (rate(mrc_port_retransmitted_packets_total{device=~"$device"}[$__rate_interval]))',
            ),
            ("{{device}} timeouts", 'rate(mrc_local_ack_timeouts_total{device=~"$device"}[$__rate_interval])'),
        ),
    ),
    (
        "Marked and trimmed on arrival",
        "pps",
        (
            (
                "{{device}} marked",
                'sum by (device) (rate(mrc_port_ecn_marked_packets_total{device=~"$device"}[$__rate_interval]))',
            ),
            (
                "{{device}} trimmed",
                'sum by (device) (rate(mrc_port_trimmed_packets_total{device=~"$device"}[$__rate_interval]))',
            ),
        ),
    ),
    (
        "Round trip and bytes in flight",
        "short",
        (
            ("{{device}} round trip, s", 'mrc_round_trip_seconds{device=~"$device"}'),
            ("{{device}} in flight, B", 'mrc_inflight_bytes{device=~"$device"}'),
        ),
    ),
    (
        "Queue pairs",
        "short",
        (
            ("{{device}} working", 'mrc_queue_pairs{device=~"$device"}'),
            ("{{device}} errors", 'increase(mrc_queue_pair_errors_total{device=~"$device"}[$__rate_interval])'),
        ),
    ),
    (
        "Dropped by hosts",
        "pps",
        (
            (
                "{{device}} port {{port}} buffer full",
                'rate(mrc_port_discards_received_total{device=~"$device"}[$__rate_interval])',
            ),
            (
                "{{device}} port {{port}} not sent",
                'rate(mrc_port_discards_transmitted_total{device=~"$device"}[$__rate_interval])',
            ),
        ),
    ),
)
_COLOURS = {"GOOD": "green", "SKIP": "yellow", "ASSUMED_BAD": "red", "DENIED": "purple"}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it; it asks for the Prometheus data source."""
    return {
        "title": "openmrc",
        "uid": "openmrc",
        "tags": ["mrc", "rdma"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {"list": [_source(), _device()]},
        "annotations": {"list": []},
        "panels": [_panel(number, *panel) for number, panel in enumerate(_PANELS)],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _device() -> dict[str, Any]:
    return {
        "name": "device",
        "type": "query",
        "label": "NIC",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": {"query": "label_values(mrc_device_info, device)", "refId": "device"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, title: str, unit: str, series: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    width = _WIDTH // 2
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": number % 2 * width, "y": number // 2 * _HEIGHT, "w": width, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0},
            "overrides": _colours() if title.startswith("EV") else [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": name}
            for index, (name, expression) in enumerate(series)
        ],
    }


def _colours() -> list[dict[str, Any]]:
    return [
        {
            "matcher": {"id": "byName", "options": state},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for state, colour in _COLOURS.items()
    ]
