"""Details around the first faults: rates per plane, queues, paths and windows, finely sampled."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from openmrc.report import curves, svg
from openmrc.report.page import card
from openmrc.report.svg import Chart, Curve, Mark, ShadedTime
from openmrc.sim.results.samples import Samples, Span
from openmrc.sim.results.summary import SimulationRun
from openmrc.units import PS_PER_US

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
