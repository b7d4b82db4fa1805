"""Plots of plans; needs matplotlib (the `plot` extra)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import Parts
from openmrc.fabric.planning.design import Design

INK = ("#1b6ca8", "#d1663d", "#8a8d91", "#4f9d69", "#8a5fa8", "#c2a83e")  # designs


def figure(columns: int, width: float, height: float) -> tuple[Any, Any]:
    """Return a figure that needs no display, and its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots need matplotlib; install the `plot` extra") from None
    drawing = Figure(figsize=(width, height), layout="constrained")
    return drawing, drawing.subplots(1, columns)


def plot_designs(designs: list[Design], parts: Parts, path: Path) -> None:
    """Draw switches, optics, power, cost and what failures take, one bar a design."""
    panels = (
        ("switches (thousands)", [each.total_switches / 1e3 for each in designs]),
        ("optics (thousands)", [each.optics / 1e3 for each in designs]),
        ("power (MW)", [each.watts / 1e6 for each in designs]),
        ("cost (millions)", [each.cost / 1e6 for each in designs]),
        ("switches on the longest path", [float(each.max_hops) for each in designs]),
        ("lost by a NIC-T0 link (%)", [each.loss_percent()["nic_link"] for each in designs]),
        ("lost by a T0-T1 link (% of plane)", [each.loss_percent()["t0_t1_link"] for each in designs]),
    )
    drawing, axes = figure(len(panels), 2.6 * len(panels), 0.55 * len(designs) + 1.6)
    names = [each.name + (f"\n({each.islands} islands)" if each.islands > 1 else "") for each in designs]
    colours = [INK[index % len(INK)] for index in range(len(designs))]
    for index, (axis, (title, values)) in enumerate(zip(axes, panels, strict=True)):
        bars = axis.barh(range(len(designs)), values, color=colours)
        labels = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]
        axis.bar_label(
            bars,
            labels=labels,
            padding=3,
            fontsize=9,
        )
        axis.set_yticks(range(len(designs)), names if index == 0 else [""] * len(designs))
        axis.set_xlim(0, max(values) * 1.3 or 1)
        axis.set_title(title, fontsize=10)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    drawing.suptitle(f"{designs[0].nics:,} NICs of {designs[0].nic_gbps:g}G; optic {parts.optic.gbps:g}G", fontsize=11)
    drawing.savefig(path, dpi=110)
