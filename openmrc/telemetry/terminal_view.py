"""The tables of `mrc top`."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from openmrc.telemetry.rates import HostRates
from openmrc.telemetry.snapshots import EV_STATES

_COLOURS = ("green", "yellow", "red", "magenta")
_MOST_QUEUE_PAIRS = 12


def drawn(rates: HostRates) -> Group:
    """Return the screen."""
    if not rates.ports:
        return Group(Text("no endpoint: start programs with MRC_CTL=on"))
    return Group(_ports(rates), *([_links(rates)] if rates.worst_links else []), _queue_pairs(rates))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    for column in columns:
        table.add_column(
            column, justify="left" if column in ("device", "address", "peer", "state", "path") else "right"
        )
    return table


def _ports(rates: HostRates) -> Table:
    table = _table(
        "Planes", "device", "port", "address", "state", "send Gb/s", "receive Gb/s", "lost", "resent/s", "EVs"
    )
    for each in rates.ports:
        colour = "green" if each.state == "up" else "red"
        table.add_row(
            each.device,
            str(each.port),
            each.address,
            Text(each.state, style=colour),
            f"{each.transmit_gbps:.2f}",
            f"{each.receive_gbps:.2f}",
            _share(each.lost_share),
            f"{each.retransmitted:.0f}",
            _evs(each.evs),
        )
    return table


def _links(rates: HostRates) -> Table:
    table = _table("Worst paths", "device", "port", "EV", "peer", "path", "state", "lost")
    for each in rates.worst_links:
        row = (each.device, str(each.port), f"{each.ev:#x}", each.peer, each.path, each.state, _share(each.lost_share))
        table.add_row(*row)
    return table


def _queue_pairs(rates: HostRates) -> Table:
    columns = (
        "device",
        "QP",
        "peer",
        "state",
        "send Gb/s",
        "resent/s",
        "timeouts",
        "in flight",
        "window",
        "RTT",
        "EVs",
    )
    table = _table("Queue pairs", *columns)
    for each in rates.queue_pairs[:_MOST_QUEUE_PAIRS]:
        table.add_row(
            each.device,
            f"{each.qpn:#x}",
            each.peer,
            Text(each.state, style="green" if each.state == "RTS" else "red"),
            f"{each.transmit_gbps:.2f}",
            f"{each.retransmitted:.0f}",
            str(each.timeouts),
            f"{each.inflight_bytes / 1024:.0f} KiB",
            f"{each.cwnd_bytes / 1024:.0f} KiB",
            f"{each.srtt_us:.0f} us",
            _evs(each.ev_states),
        )
    return table


def _share(share: float) -> str:
    return "" if share == 0 else f"{100 * share:.2g} %"


def _evs(counts: list[int]) -> Text:
    text = Text()
    for state, count, colour in zip(EV_STATES, counts, _COLOURS, strict=True):
        if count:
            text.append(f"{count} {state} ", style=colour)
    return text
