"""Snapshots with values that a test chooses, and the names of all metrics."""

from __future__ import annotations

from openmrc.ctl.device import EvReport
from openmrc.telemetry.metric_table import EV_METRIC, METRICS, QP_EV_METRICS
from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot, QpSnapshot


def endpoint(
    planes: int = 2, queue_pairs: int = 1, at: float = 100.0, device: str = "mrc_10.0.0.1", **fields: object
) -> EndpointSnapshot:
    """Return an endpoint on which every counter of a port is its number times ten."""
    return EndpointSnapshot(
        device=device,
        pid=7,
        at=at,
        ports=[
            PortSnapshot(port=n, transmitted_packets=10 * n, transmitted_bytes=10_000 * n, evs=[4, 0, 0, 0])
            for n in range(1, planes + 1)
        ],
        queue_pairs=[
            QpSnapshot(
                qpn=n,
                state="RTS",
                peer=[f"10.0.1.{p}" for p in range(planes)],
                evs=[EvReport(port=p, ev=p, state="GOOD", active=True) for p in range(1, planes + 1)],
            )
            for n in range(queue_pairs)
        ],
        **fields,  # type: ignore[arg-type]
    )


def metric_names() -> set[str]:
    """Return the names of all metrics, counters with their `_total`."""
    listed = (*METRICS.port, *METRICS.endpoint, *METRICS.queue_pair)
    named: list[tuple[str, str]] = [(each.name, each.kind) for each in listed]
    named += [(EV_METRIC[0], "gauge"), *((name, kind) for name, kind, _ in QP_EV_METRICS), ("mrc_device_info", "gauge")]
    return {f"{name}_total" if kind == "counter" else name for name, kind in named}
