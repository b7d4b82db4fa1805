"""The page of a month: what a job loses on each network, where the answer turns, and its worst day."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from openmrc.planner.month.comparison import TITLES
from openmrc.planner.month.outcome import phrase, sentence
from openmrc.planner.month.policy import NAMES
from openmrc.report import svg
from openmrc.report.page import card, folded, page, rows, tile
from openmrc.report.svg import Chart, Curve

Answer = dict[str, Any]
MOST_ROWS = 12
SWINGS = "How far half or double the input moves the goodput of the network that it moves most."
CAUSES = {"other": "other host part", "feed": "power feed", "tray": "cable tray", "batch": "bad batch of links",
          "nic_optic": "NIC module"}  # fmt: skip
MOST_MOMENTS = 60
DECIMALS = 2  # of percent, as in the table on the terminal
TINY = 0.005  # percent; smaller losses are not drawn


def month_page(result: Answer) -> str:
    """Return the page of an answer of `mrc plan job`."""
    return page("The month of a training job", _body(result))


def _body(result: Answer) -> Iterator[str]:
    asked = result["question"]
    yield f"<h1>What {asked['days']:g} days of training lose</h1>"
    yield f'<p class="lead">{escape(sentence(result))}</p>'
    yield f'<div class="tiles">{"".join(_tile(each) for each in result["networks"])}</div>'
    yield f'<div class="charts">{"".join(_charts(result))}</div>'
    yield "<h2>Where the time goes, percent</h2>" + _buckets(result["networks"])
    for each in result["networks"]:
        yield f"<h2>Failures on {escape(each['title'])}, {escape(each['design'])}</h2>" + _causes(each)
    if "break_even" in result:
        yield "<h2>Where the answer turns</h2>" + "".join(f"<p>{escape(text)}</p>" for text in turning(result))
        yield "<h2>Best policy for each network</h2>"
        yield rows(POLICY_HEAD, policy_rows(result["best_policies"]), range(1, len(POLICY_HEAD)))
    yield f"<h2>Day {result['timeline']['worst_day'] + 1}, the worst of one job</h2>" + _worst_day(result["timeline"])
    measured = result["responses"]
    when = "; ".join(f"{TITLES[name]}: {each['date']}, {each['commit']}" for name, each in measured["measured"].items())
    by = escape(f"{measured['command']}, {measured['machine']} ({when})")
    yield f"<footer>Costs of failures measured by {by}. {asked['jobs']} jobs, seed {asked['seed']}.</footer>"
    yield folded("Question and policy", "\n".join(f"{name}: {value}" for name, value in asked.items()))


def _tile(each: Answer) -> str:
    good = each["goodput_percent"]
    note = f"goodput {good['mean']:.1f} % ({good['p5']:.1f} to {good['p95']:.1f}); {each['design']}"
    return tile(f"lost to the network: {each['title']}", f"{each['network_lost_percent']:.2f} %", note)


def share_chart(networks: list[Answer]) -> str:
    """Return the picture for slides: what each network takes of the time, as bars with their values."""
    values = [(each["title"], each["network_lost_percent"]) for each in networks]
    return svg.bars("Lost to the network", "share of the time, %", values, "%", DECIMALS)


def share_picture(result: Answer) -> str:
    """Return the same chart as a file of its own, for slides."""
    asked = result["question"]
    model = asked["model"] if asked["groups"] else f"{asked['model']} model"
    title = f"Lost to the network: {asked['gpus']:,} GPUs, {asked['days']:g} days, {model}"
    return svg.standalone(share_chart(result["networks"]), title)


def _charts(result: Answer) -> Iterator[str]:
    networks = result["networks"]
    yield card("Lost to the network", share_chart(networks), "Congestion, slowdown, waiting, stops and work redone.")
    for each in networks[:2]:
        lost = [(name, value) for name, value in each["lost_percent"].items() if value >= TINY]
        yield card(f"{each['title']}: all losses", svg.bars("Losses", "share of the time, %", lost, "%", DECIMALS))
    lines = []
    for each in networks:
        good = np.sort(np.array(each["goodput_percent"]["each"], np.float64))
        lines.append(Curve(each["title"], good, np.arange(1.0, len(good) + 1) / len(good)))
    spread = Chart("Spread", "goodput, %", "share of jobs", lines, steps=True, legend=True)
    yield card("Distribution over jobs", svg.draw(spread), "Share of jobs with at most this goodput.")
    if "sensitivity" in result:
        inputs = result["sensitivity"]["inputs"]
        pair = result["sensitivity"]["between"]
        swings = [_swing(row, pair) for row in inputs]
        drawn = svg.bars("Sensitivity", "percentage points of goodput", swings, "points", DECIMALS)
        yield card("Inputs that matter most", drawn, SWINGS)
        leads = [(row["input"], max(0.0, row["lead_double"])) for row in inputs]
        drawn = svg.bars("Lead", "percentage points", leads, "points", DECIMALS)
        yield card(f"Lead over {phrase(pair[1])}", drawn, "With double the input.")
    days = np.array(result["timeline"]["days_percent"], np.float64)
    line = Curve("useful", np.arange(1.0, len(days) + 1), days)
    yield card("One job, day by day", svg.draw(Chart("Days", "day", "useful, %", [line], dots=True)))


def _swing(row: Answer, pair: list[str]) -> tuple[str, float]:
    """Return an input, and how far it moves the goodput of the network that it moves most."""
    change, network = max((abs(row[f"{each}_{word}"]), each) for each in pair for word in ("half", "double"))
    return f"{row['input']}: {phrase(network)}", change


def _buckets(networks: list[Answer]) -> str:
    names = ["useful", *networks[0]["lost_percent"]]

    def value(each: Answer, name: str) -> float:
        return float(each["goodput_percent"]["mean"] if name == "useful" else each["lost_percent"][name])

    body = [(name, *(f"{value(each, name):.3f}" for each in networks)) for name in names]
    return rows(("", *(each["title"] for each in networks)), body, range(1, 1 + len(networks)))


def _in_words(cause: str) -> str:
    """Return a kind of failure as people write it: NIC link, cable tray, T0 reboot."""
    if cause in CAUSES:
        return CAUSES[cause]
    first, _, rest = cause.partition("_")
    name = first.upper() if first in ("nic", "t0", "t1", "gpu") else first
    return f"{name} {rest.replace('_', ' ')}".strip()


def _causes(each: Answer) -> str:
    body = [
        (_in_words(row["cause"]), row["where"], f"{row['count']:,.1f}", f"{row['stops']:,.1f}",
         f"{row['lost_percent']:.3f}", f"{100 * (row['step'] / each['calm_step'] - 1):.2f}",
         f"{1e3 * row['once_s']:,.3g}")
        for row in each["causes"][:MOST_ROWS]
    ]  # fmt: skip
    head = ("failure", "of", "times a job", "stops", "lost, %", "step longer by, %", "once, ms")
    return rows(head, body, range(2, 7))


def turning(result: Answer) -> list[str]:
    """Return the break-even values as sentences."""
    found, policy = result["break_even"], result["question"]["policy"]
    one, other = (phrase(network) for network in found["between"])
    ahead, behind = (one, other) if found["lead_percent"] >= 0 else (other, one)
    flaps = "hours between flaps of a link"
    return [
        f"{ahead} leads {behind} by {abs(found['lead_percent']):.2f} percentage points of goodput.",
        _turn(behind, ahead, "Restart time", found["restart_s"], policy["restart_s"], "s", "from 1 s to 2 hours"),
        _turn(behind, ahead, "NIC link flaps", found["nic_flap_mtbf_hours"], found["nic_flap_mtbf_hours_given"], flaps,
              "from a hundredth to a hundred times the rate"),
        _turn(behind, ahead, "Time until an MRC NIC stops using a dead port", found["remap_s"], policy["remap_s"], "s",
              "from 10 ms to 1 hour"),
        _price(one, found),
    ]  # fmt: skip


def _turn(behind: str, ahead: str, name: str, value: float | None, given: float, unit: str, tried: str) -> str:
    """Return from which value of an input the network that is behind leads."""
    if value is None:
        return f"{name}: {ahead} leads at every value {tried}."
    side = "above" if value > given else "below"
    return f"{name}: {behind} leads {side} {_number(value)} {unit}; {_number(given)} were given."


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _price(one: str, found: Answer) -> str:
    """Return from which price of a GPU-hour the first network pays for itself."""
    price = found["gpu_hour_price"]
    if price == 0.0:
        return f"Price: {one} is the cheaper network with these parts, and leads."
    if price is None:
        return f"Price: {one} does not pay for itself at any price of a GPU-hour."
    return (f"Price: {one} pays for itself from {price:,.3g} a GPU-hour, in the parts file's unit, over "
            f"{found['lifetime_months']} months.")  # fmt: skip


POLICY_HEAD = ("network", NAMES["checkpoint_s"], NAMES["spares"], NAMES["patience_s"], NAMES["evict"],
               NAMES["most_lost"], "goodput")  # fmt: skip


def policy_rows(policies: list[Answer]) -> list[tuple[str, ...]]:
    """Return the best policy of each network under `POLICY_HEAD`."""
    return [
        (TITLES[each["network"]], f"{each['checkpoint_s']:g} s", f"{100 * each['spares']:g} %",
         f"{each['patience_s']:g} s", "yes" if each["evict"] else "no", f"{each['most_lost']}",
         f"{each['goodput_percent']:.2f} %")
        for each in policies
    ]  # fmt: skip


def _clock(hour: float) -> str:
    """Return the time of day of an hour of the job."""
    minutes = int(60 * (hour % 24))
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _worst_day(found: Answer) -> str:
    moments = found["worst_day_moments"]
    body = [
        (_clock(each["hour"]), _in_words(each["cause"]), each["what"], f"{each['seconds']:,.1f}")
        for each in moments[:MOST_MOMENTS]
    ]
    first = f"; the first {MOST_MOMENTS} of {len(moments)} events" if len(moments) > MOST_MOMENTS else ""
    share = found["days_percent"][found["worst_day"]]
    note = f"<p>{escape(TITLES[found['network']])}: {share:.1f} % of the day was useful{first}.</p>"
    return note + rows(("time", "failure", "what it does", "seconds"), body, (0, 3))
