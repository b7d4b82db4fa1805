"""`mrc top`: the endpoints of this host, watched in a terminal."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from openmrc.programs.outcome import print_json
from openmrc.telemetry.host_endpoints import host_events, host_snapshots
from openmrc.telemetry.rates import HostWatch
from openmrc.telemetry.terminal_view import drawn


def top(
    interval: Annotated[float, typer.Option(min=0.1, max=3600.0, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print once, and end.")] = False,
    events: Annotated[bool, typer.Option("--events", help="Print the event log as it grows, JSON lines.")] = False,
    folder: Annotated[str | None, typer.Option(help="Folder of the sockets (default: as MRC_CTL says).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and end.")] = False,
) -> None:
    """Show planes, EVs, the worst links and queue pairs of all endpoints of this host."""
    if events:
        _follow(interval, folder, once)
        return
    watch = HostWatch()
    watch.look(host_snapshots(folder, with_evs=True))
    if as_json or once:
        time.sleep(interval)
        found = watch.look(host_snapshots(folder, with_evs=True))
        if as_json:
            print_json(found)
            return
    _draw(watch, interval, folder, once)


def _draw(watch: object, interval: float, folder: str | None, once: bool) -> None:

    assert isinstance(watch, HostWatch)
    console = Console()
    if once:
        console.print(drawn(watch.latest))
        return
    try:
        with Live(drawn(watch.latest), console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(drawn(watch.look(host_snapshots(folder, with_evs=True))), refresh=True)
    except KeyboardInterrupt:
        pass


def _follow(interval: float, folder: str | None, once: bool) -> None:
    """Print events as they come; with `once` those that are kept."""
    seen: dict[str, int] = {}
    try:
        while True:
            for event in host_events(seen, folder):
                print_json(event)
            if once:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        pass
