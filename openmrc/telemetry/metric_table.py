"""The metrics, as `shipped/metrics.toml` lists them, and configurations of other programs for them.

A series per EV or queue pair exists only if it is asked for: a NIC with a thousand queue pairs of 32 EVs would have
32,000.
"""

import tomllib
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec

from openmrc.telemetry.snapshots import EndpointSnapshot, QpSnapshot

_FOLDER = Path(__file__).parent / "shipped"
READ_SLACK = 64  # packets; counters are read while the endpoint runs, some microseconds apart
MOST_PER_PORT = 40  # series of a NIC by default, divided by its ports


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric of each port, endpoint or queue pair."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    of: tuple[str, ...]  # fields of the snapshot, which are added up
    same_as: str = ""  # metric or RDMA counter of others

    def value(self, snapshot: Any) -> float:
        """Return its value in a snapshot of what it is a metric of."""
        return float(sum(attrgetter(field)(snapshot) for field in self.of))


class MetricIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two sums of metrics, over an endpoint and its ports or a queue pair that can send, equal while nothing runs."""

    about: str
    each: Literal["endpoint", "queue_pair"]
    sums: tuple[tuple[str, ...], tuple[str, ...]]


class MetricTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All metrics but those of single EVs."""

    port: tuple[Metric, ...]
    endpoint: tuple[Metric, ...]
    queue_pair: tuple[Metric, ...]
    identity: tuple[MetricIdentity, ...]

    def sum_of(self, names: Sequence[str], found: EndpointSnapshot | QpSnapshot) -> float:
        """Add up metrics of a queue pair, or of an endpoint, those of ports over all of them."""
        if isinstance(found, QpSnapshot):
            return sum(each.value(found) for each in self.queue_pair if each.name in names)
        of_ports = (each.value(port) for each in self.port if each.name in names for port in found.ports)
        return sum(of_ports) + sum(each.value(found) for each in self.endpoint if each.name in names)


METRICS = msgspec.convert(tomllib.loads((_FOLDER / "metrics.toml").read_text("utf-8")), MetricTable)
EV_METRIC = "mrc_port_evs", "EVs of all queue pairs on the port, by state."
QP_EV_METRICS = (
    ("mrc_ev_state", "gauge", "State of an EV: 0 GOOD, 1 SKIP, 2 ASSUMED_BAD, 3 DENIED."),
    ("mrc_ev_transmitted_packets", "counter", "Packets sent on an EV."),
    ("mrc_ev_lost_packets", "counter", "Packets lost on an EV."),
)


def check_identities(snapshots: Sequence[EndpointSnapshot]) -> None:
    """Raise AssertionError if sums differ by more than what an endpoint does while its counters are read."""
    for endpoint in snapshots:
        sending = [pair for pair in endpoint.queue_pairs if pair.state == "RTS"]
        for identity in METRICS.identity:
            for found in sending if identity.each == "queue_pair" else [endpoint]:
                left, right = (METRICS.sum_of(names, found) for names in identity.sums)
                said = f"{endpoint.device}: {identity.about} {left} {right}"
                assert abs(left - right) <= READ_SLACK + left / 100, said


def configuration(name: str) -> str:
    """Return alert rules, the Grafana dashboard, a Prometheus or gnmic configuration, or the table of metrics."""
    if name == "table":
        return as_markdown()
    return (_FOLDER / f"{name}.{'json' if name == 'dashboard' else 'yaml'}").read_text("utf-8").rstrip()


def as_markdown() -> str:
    """Return the table of metrics for the documentation."""
    lines = ["| metric | kind | meaning | the same as |", "|---|---|---|---|"]
    for each in (*METRICS.port, *METRICS.endpoint, *METRICS.queue_pair):
        total = "_total" if each.kind == "counter" else ""
        same = f"`{each.same_as}`" if each.same_as else ""
        lines.append(f"| `{each.name}{total}` | {each.kind} | {each.about} | {same} |")
    lines.append(f"| `{EV_METRIC[0]}` | gauge | {EV_METRIC[1]} |  |")
    lines.append("| `mrc_device_info` | gauge | 1, with release, process and congestion control. |  |")
    return "\n".join(lines)
