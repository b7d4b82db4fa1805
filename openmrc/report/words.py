"""Display names and units of scenario fields and summary figures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_KNOWN = {
    "fct_us": "completion time (us)",
    "step_us": "step time (us)",
    "step_us.finished": "steps finished",
    "last_finish_us": "last finish (us)",
    "simulated_us": "simulated time (us)",
    "goodput_gbps.total": "goodput (Gb/s)",
    "goodput_gbps.flow": "rate of a flow (Gb/s)",
    "goodput_gbps.plane": "goodput of plane (Gb/s)",
    "goodput_gbps.tier": "goodput by tier (Gb/s)",
    "queue_us": "longest queue (us)",
    "packets.new": "packets",
    "packets.retransmitted": "packets retransmitted",
    "packets.trimmed": "packets trimmed",
    "packets.dropped": "packets lost",
    "packets.lost_on_links": "packets lost on links",
    "packets.ecn_marked": "packets marked with ECN",
    "finished": "flows finished",
    "failed": "flows failed",
    "wall_s": "wall time (s)",
    "peak_rss_mb": "memory (MB)",
    "fabric.hosts.count": "hosts",
    "fabric.planes.0.count": "planes",
    "fabric.planes.0.host_gbps": "rate of a port (Gb/s)",
    "transport.name": "transport",
    "transport.qps": "queue pairs",
    "transport.mtu": "payload of a packet (bytes)",
    "transport.settings.evs": "EVs of a queue pair",
    "transport.settings.loss_threshold": "loss threshold (packets)",
    "transport.settings.max_cwnd_bdp": "largest window (BDP)",
    "name": "",
}
_UNITS = {"us": "us", "ms": "ms", "s": "s", "gbps": "Gb/s", "mb": "MB", "percent": "%", "bdp": "BDP", "bytes": "bytes",
          "kb": "kB", "ns": "ns"}  # fmt: skip
_PERCENTILE = re.compile(r"p\d+|mean|max|min")


def of_path(path: str, names: Mapping[str, str] | None = None) -> str:
    """Return the display name of a dotted path: `fct_us.p99` is "completion time, p99 (us)"."""
    if names and path in names:
        return names[path]
    for length in range(len(path), 0, -1):
        known = _KNOWN.get(path[:length])
        if known is not None and path[length : length + 1] in ("", "."):
            return _joined(known, path[length + 1 :])
    part, _, rest = path.partition(".")
    number, _, below = rest.partition(".")
    if part in ("workloads", "faults", "marks_us") and number.isdigit():
        return f"{part.rstrip('s')} {int(number) + 1}" + (f": {of_path(below)}" if below else "")
    return _plain(path.removeprefix("transport.settings.").removeprefix("transport."))


def _joined(known: str, rest: str) -> str:
    if not rest:
        return known
    name, found, unit = known.partition(" (")
    words = rest.replace(".", " ").replace("_", " ")
    separator = ", " if _PERCENTILE.fullmatch(rest) else " "
    return f"{name}{separator}{words}{found}{unit}"


def _plain(path: str) -> str:
    words = path.replace(".", " ").split("_")
    unit = _UNITS.get(words[-1].split(" ")[0]) if len(words) > 1 else None
    if unit is None:
        return " ".join(words)
    tail = words[-1].split(" ")[1:]
    return " ".join([*words[:-1], *tail]) + f" ({unit})"


def of_value(value: Any) -> str:
    """Return a value as text for a table or legend: `roce, qps 8` for a transport, `none` for no faults."""
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(_pair(key, inner) for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(of_value(each) for each in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)


def _pair(key: str, value: Any) -> str:
    if key in ("name", "kind"):
        return str(value)
    if isinstance(value, Mapping):
        return of_value(value)
    return f"{key.replace('_', ' ')} {of_value(value)}"
