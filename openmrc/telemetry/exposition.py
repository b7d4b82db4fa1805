"""Snapshots as OpenMetrics text, by prometheus_client's families and writer (the extra `metrics`)."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from openmrc.errors import ConfigError
from openmrc.telemetry.metric_table import EV_METRIC, METRICS, QP_EV_METRICS, check_identities
from openmrc.telemetry.snapshots import EV_STATES, EndpointSnapshot

OPENMETRICS = "application/openmetrics-text"
CONTENT_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
PLAIN_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABELS = ("device", "pid")


def openmetrics(snapshots: Sequence[EndpointSnapshot], per_queue_pair: bool = False, plain: bool = False) -> bytes:
    """Return the metrics of these endpoints; with `per_queue_pair` also those of each queue pair and EV.

    `plain` is the older text format of Prometheus, which node_exporter's textfile collector reads.
    """
    core = _library()
    if sys.flags.dev_mode:
        check_identities(snapshots)

    class Source:
        def collect(self) -> Iterator[Any]:
            yield from _families(core, snapshots)
            if per_queue_pair:
                yield from _qp_families(core, snapshots)

    registry = core.CollectorRegistry(auto_describe=False)
    registry.register(Source())
    text: bytes = (core if plain else core.openmetrics.exposition).generate_latest(registry)
    return text


def _library() -> Any:
    try:
        import prometheus_client
        import prometheus_client.openmetrics.exposition
    except ImportError as error:
        raise ConfigError("metrics need prometheus_client: pip install '.[metrics]'") from error
    return prometheus_client


Rows = list[tuple[EndpointSnapshot, tuple[str, ...], float]]  # of whom, further labels, value


def _family(core: Any, kind: str, name: str, about: str, labels: tuple[str, ...], rows: Rows) -> Any:
    families = core.metrics_core
    made = families.CounterMetricFamily if kind == "counter" else families.GaugeMetricFamily
    family = made(name, about, labels=(*LABELS, *labels))
    for each, own, value in rows:
        family.add_metric((each.device, str(each.pid), *own), float(value))
    return family


def _families(core: Any, snapshots: Sequence[EndpointSnapshot]) -> Iterator[Any]:
    ports = [(each, port) for each in snapshots for port in each.ports]
    for metric in METRICS.port:
        rows: Rows = [(each, (str(port.port),), metric.value(port)) for each, port in ports]
        yield _family(core, metric.kind, metric.name, metric.about, ("port",), rows)
    rows = [
        (each, (str(port.port), state), count)
        for each, port in ports
        for state, count in zip(EV_STATES, port.evs, strict=True)
    ]
    yield _family(core, "gauge", *EV_METRIC, ("port", "state"), rows)
    for metric in METRICS.endpoint:
        rows = [(each, (), metric.value(each)) for each in snapshots]
        yield _family(core, metric.kind, metric.name, metric.about, (), rows)
    rows = [(each, (each.release, each.command, each.algorithm), 1.0) for each in snapshots]
    yield _family(core, "gauge", "mrc_device_info", "Identity.", ("release", "command", "algorithm"), rows)


def _qp_families(core: Any, snapshots: Sequence[EndpointSnapshot]) -> Iterator[Any]:
    pairs = [(each, pair, f"{pair.qpn:#x}") for each in snapshots for pair in each.queue_pairs]
    for metric in METRICS.queue_pair:
        rows: Rows = [(each, (qpn, pair.peer[0] if pair.peer else ""), metric.value(pair)) for each, pair, qpn in pairs]
        yield _family(core, metric.kind, metric.name, metric.about, ("qpn", "peer"), rows)
    for index, (name, kind, about) in enumerate(QP_EV_METRICS):
        rows = [
            (each, (qpn, str(ev.port), f"{ev.ev:#x}"), (EV_STATES.index(ev.state), ev.sent, ev.lost)[index])
            for each, pair, qpn in pairs
            for ev in pair.evs
        ]
        yield _family(core, kind, name, about, ("qpn", "port", "ev"), rows)
