"""The demo on a terminal: live bars while it runs, a summary and a timeline afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from openmrc.base.amounts import size_text
from openmrc.programs.demo.single_path import SinglePath, SinglePathSample
from openmrc.programs.demo.story import DemoResult, Outage, Story
from openmrc.programs.demo.timeline import RateSample, spark

BAR = 32  # columns of a plane's bar
LINE_SECONDS = 0.5  # s between lines without a terminal
TIMELINE = 64  # columns
_STYLES = {"GOOD": "green", "SKIP": "yellow", "SILENT": "red", "ASSUMED_BAD": "red", "DENIED": "magenta"}


class View:
    """Shows a run on stderr or stdout: live bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._stack = ExitStack()
        self._live: Live | None = None
        self._story: Story | None = None
        self._most = 0.1  # Gb/s, highest rate so far on a plane
        self._tcp_most = 0.1  # Gb/s
        self._next_line = 0.0

    def __enter__(self) -> View:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def print_line(self, text: str) -> None:
        """Print a line above the live bars."""
        self._stop()
        if not self._quiet:
            self._console.print(Text(text), soft_wrap=True)

    def on_tcp(self, sample: SinglePathSample) -> None:
        """Show a sample of the TCP transfer."""
        self._tcp_most = max(self._tcp_most, sample.gbps)
        text = f"{sample.at:6.1f} s  {sample.gbps:6.2f} Gb/s  {_bar(sample.gbps, self._tcp_most, BAR)}"
        if self._console.is_terminal and not self._quiet:
            if self._live is None:
                self._live = self._stack.enter_context(Live(console=self._console, transient=True))
            self._live.update(Text(text + ("" if sample.gbps else "  nothing arrives")))
        elif not self._quiet and sample.at >= self._next_line:
            self._next_line = sample.at + LINE_SECONDS
            self._console.print(Text(text), soft_wrap=True)

    def on_begin(self, story: Story) -> None:
        """Print the schedule, and start the live bars."""
        self.print_line(f"MRC, from memory to memory over {story.options.planes} planes; schedule:")
        for line in schedule_lines(story.outages):
            self.print_line(f"  {line}")
        self._story, self._next_line = story, 0.0
        if self._console.is_terminal and not self._quiet:
            self._live = Live(
                console=self._console, refresh_per_second=10, get_renderable=self._picture, transient=True
            )
            self._stack.enter_context(self._live)

    def on_sample(self, sample: RateSample) -> None:
        """Record a sample; without a terminal, print one line per interval."""
        self._most = max(self._most, *sample.planes)
        if self._quiet or self._live is not None or self._story is None or sample.at < self._next_line:
            return
        self._next_line = sample.at + LINE_SECONDS
        self._console.print(Text(sample_line(sample, self._most)), soft_wrap=True)

    def _stop(self) -> None:
        self._stack.close()
        self._live = None

    def _picture(self) -> Group:
        story = self._story
        if story is None or not story.samples:
            return Group(Text("connecting ..."))
        sample = story.samples[-1]
        head = Text(f"{sample.at:5.1f} s  {sample.gbps:6.2f} Gb/s  {size_text(sample.done)} arrived and checked")
        return Group(head, *(self._plane(sample, plane, story.outages) for plane in range(len(sample.planes))))

    def _plane(self, sample: RateSample, plane: int, outages: Sequence[Outage]) -> Text:
        silent = is_silent(outages, plane, sample.at)
        text = Text(f"  plane {plane:<2} ")
        text.append(_bar(sample.planes[plane], self._most, BAR), style="red" if silent else "green")
        text.append(f" {sample.planes[plane]:6.2f} Gb/s  ")
        for state, count in sample.evs[plane].items():
            text.append(f"{count} {state} ", style=_STYLES.get(state, ""))
        return text.append("  down" if silent else "", style="bold red")


def sample_line(sample: RateSample, most: float) -> str:
    """Return a sample as one line: time, rate, and per plane a bar, the rate and bad EVs."""
    planes = "  ".join(
        f"{plane} {_bar(rate, most, 6)} {rate:5.2f}{_bad(sample.evs[plane])}"
        for plane, rate in enumerate(sample.planes)
    )
    return f"{sample.at:6.1f} s  {sample.gbps:6.2f} Gb/s  {planes}"


def schedule_lines(outages: Sequence[Outage]) -> list[str]:
    """Return the schedule as lines."""
    changes = [(each.down, f"plane {each.plane} goes down (both directions)") for each in outages]
    changes += [(each.up, f"plane {each.plane} comes up") for each in outages if each.up is not None]
    return [f"{at:5.1f} s  {what}" for at, what in sorted(changes)] or ["no faults"]


def is_silent(outages: Sequence[Outage], plane: int, at: float) -> bool:
    """Whether the plane is down at this time by the schedule."""
    return any(each.plane == plane and each.down <= at < (each.up or at + 1) for each in outages)


def summary(result: DemoResult) -> Table:
    """Return a table of the planes."""
    table = Table(title=f"{size_text(result.bytes)} in {result.seconds:.2f} s, {result.gbps:.2f} Gb/s")
    terms = ("address", "EVs at the end", "back in use")
    for name in ("plane", "address", "sent packets", "share", "retransmitted", "lost", *terms[1:]):
        table.add_column(name, justify="left" if name in terms else "right")
    for each in result.planes:
        back = ", ".join(_returned(outage) for outage in result.outages if outage.plane == each.plane)
        evs = " ".join(f"{count} {state}" for state, count in each.evs.items())
        numbers = (f"{each.sent_packets:,}", f"{each.share:.1%}", f"{each.retransmitted:,}", f"{each.lost:,}")
        table.add_row(str(each.plane), each.address, *numbers, evs, back or "never down")
    return table


def timeline(result: DemoResult) -> list[str]:
    """Return the rate of each plane over time in block characters, with its outages below."""
    samples = result.samples
    if not samples:
        return []
    width, length = min(TIMELINE, len(samples)), samples[-1].at
    most = max(max(sample.planes) for sample in samples)
    lines = [f"rate on each plane, 0 to {most:.2f} Gb/s, over {length:.1f} s; '·' marks outages"]
    for plane in range(len(samples[0].planes)):
        lines.append(f"  plane {plane:<2} |{spark([each.planes[plane] for each in samples], width, most)}|")
        times = [(column + 0.5) / width * length for column in range(width)]
        marks = "".join("·" if is_silent(result.outages, plane, at) else " " for at in times)
        if marks.strip():
            lines.append(f"            {marks}")
    highest = max(sample.gbps for sample in samples)
    total = spark([sample.gbps for sample in samples], width, highest)
    lines.append(f"  all      |{total}|  0 to {highest:.2f} Gb/s at the receiver")
    if result.single_path is not None:
        rates, plane = [sample.gbps for sample in result.single_path.samples], result.single_path.plane
        most = max(rates, default=0.0)
        lines.append(f"  TCP      |{spark(rates, width, most)}|  0 to {most:.2f} Gb/s over plane {plane} alone")
    return lines


def comparison(result: DemoResult, single: SinglePath) -> str:
    """Return one sentence: the longest pauses of both, with the same outages."""
    return (
        f"longest pause of the receiver: MRC over {len(result.planes)} planes {result.longest_stall_ms:,.0f} ms, "
        f"TCP over plane {single.plane} alone {single.longest_stall_ms:,.0f} ms"
    )


def _returned(outage: Outage) -> str:
    if outage.up is None:
        return "not back"
    return f"after {outage.returned_ms:.0f} ms" if outage.returned_ms is not None else "not before the end"


def _bar(value: float, most: float, width: int) -> str:
    filled = round(min(value / most, 1.0) * width) if most > 0 else 0
    return "█" * filled + "░" * (width - filled)


def _bad(states: dict[str, int]) -> str:
    wrong = [f"{count} {state}" for state, count in states.items() if state != "GOOD"]
    return f" ({', '.join(wrong)})" if wrong else ""
