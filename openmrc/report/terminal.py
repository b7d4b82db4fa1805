"""A run in the terminal: one line while it goes, one table when it is over."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from openmrc.report.simulation import number
from openmrc.sim.simulate import Status

EVERY_S = 10.0  # between two lines where lines cannot be overwritten


class ProgressLine:
    """Writes to stderr: simulated time, packets a second, flows, and how much longer."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._written = 0.0
        self._dirty = False

    def __call__(self, status: Status) -> None:
        """Say where the run stands."""
        if not self._live and status.wall_s - self._written < EVERY_S:
            return
        self._written = status.wall_s
        text = line(status)
        sys.stderr.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()
        self._dirty = self._live

    def close(self) -> None:
        """Leave the line empty for what follows."""
        if self._dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def line(status: Status) -> str:
    """Return one line about a run on its way."""
    rate = status.hops / status.wall_s if status.wall_s else 0.0
    left = f"{status.left_s:,.0f} s left" if status.left_s is not None else "time left unknown"
    return (
        f"simulated {status.now / 1e6:,.1f} us, {status.hops / 1e6:,.1f} M packet-hops, {rate / 1e6:.2f} M/s, "
        f"{min(status.share, 1):.0%} of the bytes, {status.finished:,} of {status.of:,} done, {left}"
    )


def show(summary: dict[str, Any], out: str | None) -> None:
    """Print the summary of a run to stdout."""
    console = Console(highlight=False)
    complete = summary["flows"] == summary["finished"]
    console.print(
        f"[bold]{summary['name']}[/]: [{'green' if complete else 'red'}]{summary['finished']:,} of "
        f"{summary['flows']:,} flows finished[/]" + (", interrupted" if summary["interrupted"] else "")
    )
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _lines(summary):
        table.add_row(name, value)
    console.print(table)
    for warning in summary["warnings"]:
        console.print(f"[yellow]warning:[/] {warning}", soft_wrap=True, markup=True)
    if out:
        console.print(f"written to {out}", soft_wrap=True)


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    fct, packets = summary["fct_us"], summary["packets"]
    found = [("transport", f"{summary['transport']}, {summary['hosts']:,} NICs, {summary['planes']} planes")]
    found.append(("completion time, us", _spread(fct)))
    if "step_us" in summary:
        found.append(("step time, us", _spread(summary["step_us"])))
    found += [
        ("last finish", number(summary["last_finish_us"], " us")),
        ("goodput", number(summary["goodput_gbps"]["total"], " Gb/s")),
        ("packets", ", ".join(f"{packets[name]:,} {name.replace('_', ' ')}"
                              for name in ("new", "retransmitted", "trimmed", "dropped", "ecn_marked"))),
        ("here", f"{summary['wall_s']:.2f} s, {_rate(summary):.2f} M packet-hops/s, {summary['peak_rss_mb']:.0f} MB, "
                 f"{summary['threads']} thread{'s' if summary['threads'] > 1 else ''}, seed {summary['seed']}"),
    ]  # fmt: skip
    if checked := summary.get("tables_checked"):
        found.append(("uSID tables", f"lead {checked['evs']:,} EVs of {checked['pairs']:,} pairs of NICs where the "
                                     f"simulator does, {checked['hops']:,} decisions compared"))  # fmt: skip
    for kept in summary.get("captures", ()):
        found.append(("captured", f"{kept['packets']:,} packets of {kept['host']}"))
    return found


def _spread(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number(values[name])}" for name in ("mean", "p50", "p99", "max"))


def _rate(summary: dict[str, Any]) -> float:
    return float(summary["packet_hops"]) / 1e6 / max(1e-9, float(summary["wall_s"]))
