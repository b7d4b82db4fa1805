"""What all endpoints of this host count: `mrc metrics`, once or for a scraper, and `mrc top`, on a terminal."""

import sys
import time
from contextlib import closing
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from openmrc.errors import UsageError
from openmrc.programs.endpoint.ctl import Folder
from openmrc.programs.outcome import Json, give, print_json, stoppable
from openmrc.telemetry.exposition import openmetrics
from openmrc.telemetry.metric_table import configuration
from openmrc.telemetry.metrics_server import MetricsServer, parse_address
from openmrc.telemetry.rates import HostRates, HostWatch
from openmrc.telemetry.snapshot_ops import host_events, host_snapshots
from openmrc.telemetry.snapshots import EV_STATES

CONFIGURATIONS = ("rules", "dashboard", "prometheus", "gnmic", "table")
_COLOURS = ("green", "yellow", "red", "magenta")
_MOST_QUEUE_PAIRS = 12


def metrics(
    listen: Annotated[str | None, typer.Option(help="Serve scrapers at ADDRESS:PORT (PORT: on loopback).")] = None,
    per_queue_pair: Annotated[
        bool, typer.Option("--per-queue-pair", help="Add series for each queue pair and EV: many.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Prometheus' older text, as node_exporter's textfile collector reads.")
    ] = False,
    show: Annotated[str | None, typer.Option(help=f"Print a configuration: {', '.join(CONFIGURATIONS)}.")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Read all endpoints of this host through their controller sockets, and print OpenMetrics or serve a scraper."""
    if show is not None:
        if show not in CONFIGURATIONS:
            raise UsageError(f"--show: {show!r} is not one of {', '.join(CONFIGURATIONS)}")
        typer.echo(configuration(show))
        return

    if as_json:
        print_json({"endpoints": host_snapshots(folder, per_queue_pair)})
        return

    if listen is None:
        sys.stdout.write(openmetrics(host_snapshots(folder, per_queue_pair), per_queue_pair, plain).decode())
        return
    _serve(listen, folder, per_queue_pair)


def _serve(listen: str, folder: str | None, per_queue_pair: bool) -> None:
    def scrape(plain: bool) -> bytes:
        return openmetrics(host_snapshots(folder, per_queue_pair), per_queue_pair, plain)

    scrape(False)  # what is wrong is said now
    server = MetricsServer(parse_address(listen, "--listen"), scrape)
    with closing(server), stoppable():
        typer.echo(f"mrc: metrics at {server.url}", err=True)
        server.wait()


def top(
    interval: Annotated[float, typer.Option(min=0.1, max=3600.0, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print once, and end.")] = False,
    events: Annotated[bool, typer.Option("--events", help="Print the event log as it grows, JSON lines.")] = False,
    folder: Folder = None,
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
        give(found, as_json, lambda: Console().print(drawn(found)))
        return
    console = Console()
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


def drawn(rates: HostRates) -> Group:
    """Return the screen."""
    if not rates.ports:
        return Group(Text("no endpoint: start programs with MRC_CTL=on"))
    return Group(_ports(rates), *([_links(rates)] if rates.worst_links else []), _queue_pairs(rates))


def _table(title: str, columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    for column in columns.split(", "):
        table.add_column(
            column, justify="left" if column in ("device", "address", "peer", "state", "path") else "right"
        )
    return table


def _ports(rates: HostRates) -> Table:
    table = _table("Planes", "device, port, address, state, send Gb/s, receive Gb/s, lost, resent/s, EVs")
    for each in rates.ports:
        state = Text(each.state, style="green" if each.state == "up" else "red")
        moved = f"{each.transmit_gbps:.2f}", f"{each.receive_gbps:.2f}", _share(each.lost_share)
        table.add_row(
            each.device, str(each.port), each.address, state, *moved, f"{each.retransmitted:.0f}", _evs(each.evs)
        )
    return table


def _links(rates: HostRates) -> Table:
    table = _table("Worst paths", "device, port, EV, peer, path, state, lost")
    for each in rates.worst_links:
        row = (each.device, str(each.port), f"{each.ev:#x}", each.peer, each.path, each.state, _share(each.lost_share))
        table.add_row(*row)
    return table


def _queue_pairs(rates: HostRates) -> Table:
    columns = "device, QP, peer, state, send Gb/s, resent/s, timeouts, in flight, window, RTT, EVs"
    table = _table("Queue pairs", columns)
    for each in rates.queue_pairs[:_MOST_QUEUE_PAIRS]:
        state = Text(each.state, style="green" if each.state == "RTS" else "red")
        moved = f"{each.transmit_gbps:.2f}", f"{each.retransmitted:.0f}", str(each.timeouts)
        window = f"{each.inflight_bytes / 1024:.0f} KiB", f"{each.cwnd_bytes / 1024:.0f} KiB", f"{each.srtt_us:.0f} us"
        table.add_row(each.device, f"{each.qpn:#x}", each.peer, state, *moved, *window, _evs(each.ev_states))
    return table


def _share(share: float) -> str:
    return "" if share == 0 else f"{100 * share:.2g} %"


def _evs(counts: list[int]) -> Text:
    text = Text()
    for state, count, colour in zip(EV_STATES, counts, _COLOURS, strict=True):
        if count:
            text.append(f"{count} {state} ", style=colour)
    return text
