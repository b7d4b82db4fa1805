"""A picture of planned designs: what each needs, and what failures take from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from openmrc.errors import UsageError
from openmrc.fabric.model.parts import Parts
from openmrc.planner.design import Design
from openmrc.report.svg import bars, stacked, standalone

_PANELS: tuple[tuple[str, str, Callable[[Design], float]], ...] = (
    ("switches", "", lambda each: each.total_switches),
    ("optics", "", lambda each: each.optics),
    ("power", "MW", lambda each: each.watts / 1e6),
    ("cost", "millions", lambda each: each.cost / 1e6),
    ("switches on the longest path", "", lambda each: each.max_hops),
    ("lost by a NIC-T0 link", "%", lambda each: each.loss_percent()["nic_link"]),
    ("lost by a T0-T1 link", "% of a plane", lambda each: each.loss_percent()["t0_t1_link"]),
)


def plot_designs(designs: Sequence[Design], parts: Parts, path: Path) -> None:
    """Write an SVG with a panel for each figure and in it a bar for each design."""
    if path.suffix != ".svg":
        raise UsageError(f"--plot: {path}: pictures are SVG; name the file {path.with_suffix('.svg').name}")
    names = [each.name + (f" ({each.islands} islands)" if each.islands > 1 else "") for each in designs]
    drawn = [
        bars(what, what, [(name, value(each)) for name, each in zip(names, designs, strict=True)], unit)
        for what, unit, value in _PANELS
    ]
    title = f"{designs[0].nics:,} NICs of {designs[0].nic_gbps:g}G; optic {parts.optic.gbps:g}G"
    path.write_text(standalone(stacked(title, drawn), title), encoding="utf-8")
