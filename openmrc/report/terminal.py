"""Terminal output of a run: a progress line, then a table."""

import os
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from openmrc.base.terminal import print_table
from openmrc.report.simulation import number
from openmrc.sim.loop import failures
from openmrc.sim.results import job
from openmrc.sim.simulate import PROGRESS_S, Status

EVERY_S = 10.0  # between progress lines when stderr is not a terminal


class ProgressLine:
    """Writes progress to stderr: one line that changes at a terminal, else lines now and then."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._written = 0.0
        self._dirty = False

    def __call__(self, status: Status) -> None:
        self.show(line(status), status.wall_s)

    def show(self, text: str, wall_s: float) -> None:
        """Write a text, unless the last one is recent."""
        if wall_s - self._written < (PROGRESS_S if self._live else EVERY_S):
            return
        self._written = wall_s
        sys.stderr.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()
        self._dirty = self._live

    def close(self) -> None:
        if self._dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def line(status: Status) -> str:
    """Format the progress of a run in one line: simulated time, packet-hops per second, flows, time left."""
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
        f"[bold]{escape(summary['name'])}[/]: [{'green' if complete else 'red'}]{summary['finished']:,} of "
        f"{summary['flows']:,} flows finished[/]" + (", interrupted" if summary["interrupted"] else "")
    )
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _lines(summary):
        table.add_row(name, value)
    print_table(table)
    for problem in errors(summary):
        console.print(f"[red]{escape(problem)}[/]", soft_wrap=True)
    for warning in summary["warnings"]:
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)
    if out:
        console.print(f"written to {escape(out)}", soft_wrap=True)


def errors(summary: dict[str, Any]) -> Iterator[str]:
    """Yield lines about connections in error: the count per cause, then the first few."""
    result = summary["errors"]
    if not result["queue_pairs"]:
        return
    causes = ", ".join(f"{count:,} {cause}" for cause, count in result["by_cause"].items())
    yield f"{result['queue_pairs']:,} connections in error ({causes}); {summary['failed']:,} flows failed"
    for one in result["first"][:3]:
        yield f"  {failures.describe(one)}"


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    fct, packets = summary["fct_us"], summary["packets"]
    rate = summary["packet_hops"] / 1e6 / max(1e-9, summary["wall_s"])
    used = f", {summary['hosts_used']:,} of them used" if summary["hosts_used"] < summary["hosts"] else ""
    nics = f"{summary['hosts']:,} NICs{used}"
    found = [("transport", f"{summary['transport']}, {nics}, {summary['planes']} planes")]
    found.append(("completion time, us", _spread(fct)))
    if "step_us" in summary:
        jobs = [each["step_us"] for each in summary["workloads"] if "step_us" in each]
        for count, steps in enumerate(jobs, 1):
            found.append(("step time, us" + f", job {count}" * (len(jobs) > 1), _spread(steps)))
        found.append(("job", job.describe(summary["job"])))
    found += [
        ("last finish", number(summary["last_finish_us"], " us")),
        ("goodput", number(summary["goodput_gbps"]["total"], " Gb/s")),
        ("packets", ", ".join(f"{packets[name]:,} {name.replace('_', ' ')}"
                              for name in ("new", "retransmitted", "trimmed", "dropped", "ecn_marked"))),
        ("this run", f"{summary['wall_s']:.2f} s, {rate:.2f} M packet-hops/s, "
                     f"{summary['peak_rss_mb']:.0f} MB, {summary['threads']} thread{'s' * (summary['threads'] > 1)}, "
                     f"seed {summary['seed']}"),
    ]  # fmt: skip
    if domains := summary.get("scale_up"):
        flows = f"{domains['finished']:,} of {domains['flows']:,} flows, {domains['bytes']:,} bytes"
        found.append(("inside domains", f"{flows}, {number(domains['goodput_gbps'], ' Gb/s')}"))
    for kept in summary.get("captures", ()):
        found.append(("captured", f"{kept['packets']:,} packets of {kept['host']}"))
    return found


def _spread(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number(values[name])}" for name in ("mean", "p50", "p99", "max"))


MOST_ROWS = 60  # of a table


def show_sweep(header: list[str], body: list[list[str]], result: dict[str, Any]) -> None:
    """Print a sweep: a row per point, then refused points by reason."""
    console = Console(highlight=False)
    grid = Table(box=None, padding=(0, 2, 0, 0))
    first = header.index("flows finished")
    for at, name in enumerate(header):
        grid.add_column(escape(name), justify="left" if at < first else "right", overflow="fold")
    for row in body[:MOST_ROWS]:
        grid.add_row(*map(escape, row))
    print_table(grid)
    if len(body) > MOST_ROWS:
        console.print(f"and {len(body) - MOST_ROWS:,} more in results.json")
    for why, count in result["refused_because"].items():
        console.print(f"[red]{count:,} refused:[/] {escape(why)}", soft_wrap=True)
    for warning in result["warnings"]:
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)
    console.print(
        f"{result['points']} points, {result['unfinished']} with unfinished flows, {result['refused']} refused; "
        f"written to {escape(result['out'])}",
        soft_wrap=True,
    )


def show_comparison(result: dict[str, Any], out: str) -> None:
    """Print scenarios side by side: step times with and without faults, and GPU time lost."""
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for row in result["scenarios"]:
        table.add_column(row["name"], justify="right")
    for name, values in compared(result["scenarios"]):
        table.add_row(name, *values)
    print_table(table)
    for row in result["scenarios"]:
        for problem in errors(row):
            console.print(f"[red]{escape(row['name'])}: {escape(problem)}[/]", soft_wrap=True)
    for difference in result["differences"]:
        console.print(f"[yellow]differs:[/] {escape(difference)}", soft_wrap=True)
    console.print(f"written to {escape(out)}", soft_wrap=True)


def compared(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of a comparison: a name, and a cell for each scenario."""
    yield "transport", [f"{row['transport']}, {row['planes']} plane{'s' * (row['planes'] != 1)}" for row in rows]
    yield "NICs", [f"{row['hosts']:,}" for row in rows]
    yield "steps finished", [f"{row['steps']['finished']} of {row['steps']['count']}" for row in rows]
    for name in ("mean", "p50", "p99", "max"):
        yield f"step time {name}, us", [number(row["steps"][name]) for row in rows]
    yield "without faults: mean, us", [number(row["without_faults"]["mean"]) for row in rows]
    yield "packets lost on links", [f"{row['lost_on_links']:,}" for row in rows]
    yield "retransmitted", [f"{row['retransmitted']:,}" for row in rows]
    jobs = [row["job"] for row in rows]
    yield "job", ["stopped" if each["stopped"] else "finished" if each["finished"] else "unfinished" for each in jobs]
    if any(each["stopped"] for each in jobs):
        yield "stopped at, us", [number(each["at_us"]) for each in jobs]
        yield "cost of a restart", [job.cost(each) for each in jobs]
    lost = [row["gpu_time_lost_percent"] for row in rows]
    yield "GPU time lost", [f"{value:.2f} %" if value is not None else "job not finished" for value in lost]
