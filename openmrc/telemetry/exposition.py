"""Snapshots as OpenMetrics text, by prometheus_client's families and writer (the extra `metrics`)."""

import sys
from collections.abc import Iterable, Iterator, Sequence
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


def _family(core: Any, kind: str, name: str, about: str, labels: Iterable[str]) -> Any:
    families = core.metrics_core
    made = families.CounterMetricFamily if kind == "counter" else families.GaugeMetricFamily
    return made(name, about, labels=tuple(labels))


def _families(core: Any, snapshots: Sequence[EndpointSnapshot]) -> Iterator[Any]:
    for port_metric in METRICS.port:
        family = _family(core, port_metric.kind, port_metric.name, port_metric.about, (*LABELS, "port"))
        for each in snapshots:
            for port in each.ports:
                family.add_metric((*_identity(each), str(port.port)), port_metric.value(port))
        yield family
    family = _family(core, "gauge", EV_METRIC[0], EV_METRIC[1], (*LABELS, "port", "state"))
    for each in snapshots:
        for port in each.ports:
            for state, count in zip(EV_STATES, port.evs, strict=True):
                family.add_metric((*_identity(each), str(port.port), state), float(count))
    yield family
    for metric in METRICS.endpoint:
        family = _family(core, metric.kind, metric.name, metric.about, LABELS)
        for each in snapshots:
            family.add_metric(_identity(each), metric.value(each))
        yield family
    info = _family(core, "gauge", "mrc_device_info", "Identity.", (*LABELS, "release", "command", "algorithm"))
    for each in snapshots:
        info.add_metric((*_identity(each), each.release, each.command, each.algorithm), 1.0)
    yield info


def _qp_families(core: Any, snapshots: Sequence[EndpointSnapshot]) -> Iterator[Any]:
    for metric in METRICS.queue_pair:
        family = _family(core, metric.kind, metric.name, metric.about, (*LABELS, "qpn", "peer"))
        for each in snapshots:
            for pair in each.queue_pairs:
                labels = (*_identity(each), f"{pair.qpn:#x}", pair.peer[0] if pair.peer else "")
                family.add_metric(labels, metric.value(pair))
        yield family
    for index, (name, kind, about) in enumerate(QP_EV_METRICS):
        family = _family(core, kind, name, about, (*LABELS, "qpn", "port", "ev"))
        for each in snapshots:
            for pair in each.queue_pairs:
                for ev in pair.evs:
                    value = (EV_STATES.index(ev.state), ev.sent, ev.lost)[index]
                    place = (f"{pair.qpn:#x}", str(ev.port), f"{ev.ev:#x}")
                    family.add_metric((*_identity(each), *place), float(value))
        yield family


def _identity(each: EndpointSnapshot) -> tuple[str, str]:
    return each.device, str(each.pid)
