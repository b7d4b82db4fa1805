"""Heat maps of links, one per tier and direction: utilisation, longest queue, losses."""

from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from openmrc.core.arrays import Floats
from openmrc.fabric.model.topology import LinkTier
from openmrc.report import curves, svg
from openmrc.report.page import card
from openmrc.report.svg import Chart, Curve, Mark, ShadedTime
from openmrc.sim.results.samples import LinkGroup, Samples, Span, goes_up
from openmrc.sim.results.summary import SimulationRun
from openmrc.units import PS_PER_S, PS_PER_US

MOST_COLUMNS = 64  # of a map; with more links, a cell shows the highest of several


def link_maps(run: SimulationRun) -> Iterator[str]:
    """Yield maps of utilisation for each tier and direction, then one of the longest queues and one of losses."""
    links, topology = run.results.links, run.topology
    busy = links["data_bytes"].astype(np.float64) * 8 * PS_PER_S / (topology.link_rate.astype(np.float64) * run.span)
    for tier, up in _directions(run):
        yield _map(run, tier, up, busy * 100, 100.0, "% of the rate", "Load of links")
    lost = (links["lost"] + links["dropped"] + links["trimmed"]).astype(np.float64)
    for values, unit, title in (
        (links["peak"] / PS_PER_US, "us", "Longest queue"),
        (lost, "packets", "Packets lost or trimmed"),
    ):
        tier, up = max(_directions(run), key=lambda way: float(values[_rows(run, *way)].max(initial=0.0)))
        if values[_rows(run, tier, up)].any():
            yield _map(run, tier, up, values, float(values[_rows(run, tier, up)].max()), unit, title)


def _directions(run: SimulationRun) -> list[tuple[int, bool]]:
    tier, up = run.topology.link_tier.astype(np.int64), goes_up(run.topology)
    return sorted(set(zip(tier.tolist(), up.tolist(), strict=True)), key=lambda way: (way[0], not way[1]))


def _rows(run: SimulationRun, tier: int, up: bool) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = (run.topology.link_tier == tier) & (goes_up(run.topology) == up)
    return chosen


def _map(run: SimulationRun, tier: int, up: bool, values: Floats, full: float, unit: str, title: str) -> str:
    topology, chosen = run.topology, _rows(run, tier, up)
    planes = np.unique(topology.link_plane[chosen])
    most = max(int((topology.link_plane[chosen] == plane).sum()) for plane in planes)
    columns = min(MOST_COLUMNS, most)
    cells = np.full((len(planes), columns), np.nan)
    for row, plane in enumerate(planes):
        mine = values[chosen & (topology.link_plane == plane)]
        parts = np.array_split(mine, min(columns, len(mine)))
        cells[row, : len(parts)] = [part.max() for part in parts]
    name = LinkGroup(0, LinkTier(tier), up).name
    shared = -(-most // columns)
    axis = f"{most:,} links {name} in order of their switches" + (
        f"; a cell shows the highest of {shared}" if shared > 1 else ""
    )
    labels = [f"plane {plane}" for plane in planes.tolist()]
    heading = f"{title}, {name.replace('>', ' to ')}"
    return card(heading, svg.heat_map(heading, axis, labels, cells / (full or 1.0), unit=unit, full=full))


_AXIS = "us after the fault"
_PLANES = "Goodput of each plane"
_RATES = 48  # points of a rate in one chart


def closeups(run: SimulationRun) -> Iterator[str]:
    """Yield a section of the page for each span."""
    for span in run.spans:
        first = next((at for at, event in enumerate(run.events) if event.begins and event.at == span.fault), None)
        samples = run.samples.within(span)
        if first is not None and len(samples.at) > 2:
            yield _closeup(run, span, samples, first)


def _closeup(run: SimulationRun, span: Span, samples: Samples, first: int) -> str:
    events = [(number, event) for number, event in enumerate(run.events, 1) if span.begin <= event.at <= span.end]
    marks = [Mark((event.at - span.fault) / PS_PER_US, event.text, number) for number, event in events]
    title = f"{first + 1}. {span.fault / PS_PER_US:,.10g} us: {run.events[first].text}"
    coarser = curves.apart(samples, (span.end - span.begin) // _RATES)
    charts = [
        (_PLANES, "Gb/s into all NICs", curves.goodput(run, coarser, span.fault), False),
        ("Longest queue", "us to drain", curves.queues(samples, span.fault), False),
        ("Paths taken out of use and restored, by cause", "changes", curves.transitions(samples, span.fault), True),
        *((each.title, each.unit, curves.watched(run, samples, each, span.fault), False) for each in curves.WATCHED),
    ]
    shades = curves.outages(run, span.fault)
    inside = "".join(_chart(name, unit, lines, marks, shades, steps) for name, unit, lines, steps in charts if lines)
    return f"<h3>{escape(title)}</h3><p class='lead'>{escape(_changes(samples))}</p><div class='charts'>{inside}</div>"


def _chart(title: str, unit: str, lines: list[Curve], marks: list[Mark], shades: list[ShadedTime], steps: bool) -> str:
    band = None
    if title == _PLANES:
        lines, band = curves.of_planes(lines)
    return card(title, svg.draw(Chart(title, _AXIS, unit, lines, marks, shades, steps=steps, legend=True, band=band)))


def _changes(samples: Samples) -> str:
    """Describe the changes of the counters during the span."""
    lost, trimmed = (int(samples.total(name)[-1] - samples.total(name)[0]) for name in ("lost", "trimmed"))
    terms = [f"{lost:,} packets lost on links", f"{trimmed:,} trimmed"]
    again = samples.series.get("retransmitted")
    if again is not None:
        terms.append(f"{int(again[-1] - again[0]):,} retransmitted")
    out = samples.series.get("evs_out")
    if out is not None:
        terms.append(f"at most {int(out.max()):,} EVs out of use")
    return f"In these {(samples.at[-1] - samples.at[0]) / PS_PER_US:,.4g} us: {', '.join(terms)}."
