"""The page of a month: what a job loses on each network, where the answer turns, and its worst day."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from openmrc.jobs.outcome import sentence
from openmrc.report import svg
from openmrc.report.page import card, folded, page, rows, tile
from openmrc.report.svg import Chart, Curve

Answer = dict[str, Any]
MOST_ROWS = 12
MOST_MOMENTS = 60
TINY = 0.001  # percent; smaller losses are not drawn


def month_page(result: Answer) -> str:
    """Return the page of an answer of `mrc plan job`."""
    return page("The month of a training job", _body(result))


def _body(result: Answer) -> Iterator[str]:
    asked = result["question"]
    yield "<h1>What a month of training loses</h1>"
    yield f'<p class="lead">{escape(sentence(result))}</p>'
    yield f'<div class="tiles">{"".join(_tile(each) for each in result["networks"])}</div>'
    yield f'<div class="charts">{"".join(_charts(result))}</div>'
    yield "<h2>Where the time goes, percent</h2>" + _buckets(result["networks"])
    for each in result["networks"]:
        yield f"<h2>Failures on {escape(each['title'])}, {escape(each['design'])}</h2>" + _causes(each)
    if "break_even" in result:
        yield "<h2>Where the answer turns</h2>" + "".join(f"<p>{escape(text)}</p>" for text in turning(result))
        yield "<h2>Best policies</h2>" + _policies(result["best_policies"])
    yield f"<h2>Day {result['timeline']['worst_day'] + 1}, the worst of one job</h2>" + _worst_day(result["timeline"])
    measured = result["responses"]
    by = ", ".join(escape(measured[name]) for name in ("command", "date", "commit", "machine"))
    yield f"<footer>Costs of failures measured by {by}. {asked['jobs']} jobs, seed {asked['seed']}.</footer>"
    yield folded("Question and policy", "\n".join(f"{name}: {value}" for name, value in asked.items()))


def _tile(each: Answer) -> str:
    good = each["goodput_percent"]
    note = f"goodput {good['mean']:.1f} % ({good['p5']:.1f} to {good['p95']:.1f}); {each['design']}"
    return tile(f"lost to the network: {each['title']}", f"{each['network_lost_percent']:.2f} %", note)


def share_chart(networks: list[Answer]) -> str:
    """Return the picture for slides: what each network takes of the month, as bars with their values."""
    values = [(each["title"], each["network_lost_percent"]) for each in networks]
    return svg.bars("Lost to the network", "share of the month, %", values, "%")


def share_picture(networks: list[Answer]) -> str:
    """Return the same chart as a file of its own, for slides."""
    return svg.standalone(share_chart(networks), "What the network takes of a month of training")


def _charts(result: Answer) -> Iterator[str]:
    networks = result["networks"]
    yield card("Lost to the network", share_chart(networks), "Congestion, slowdown, waiting, stops and work redone.")
    for each in networks[:2]:
        lost = [(name, value) for name, value in each["lost_percent"].items() if value >= TINY]
        yield card(f"{each['title']}: all losses", svg.bars("Losses", "share of the month, %", lost, "%"))
    lines = []
    for each in networks:
        good = np.sort(np.array(each["goodput_percent"]["each"], np.float64))
        lines.append(Curve(each["title"], good, np.arange(1.0, len(good) + 1) / len(good)))
    spread = Chart("Spread", "goodput, %", "share of jobs", lines, steps=True, legend=True)
    yield card("Distribution over jobs", svg.draw(spread), "Share of jobs with at most this goodput.")
    if "sensitivity" in result:
        inputs = result["sensitivity"]["inputs"]
        first = result["sensitivity"]["between"][0]
        swings = [(row["input"], abs(row[f"{first}_double"] - row[f"{first}_half"])) for row in inputs]
        drawn = svg.bars("Sensitivity", "percentage points of goodput", swings, "points")
        yield card("Inputs that matter most", drawn, "Goodput with half the input minus goodput with double.")
        leads = [(row["input"], max(0.0, row["lead_double"])) for row in inputs]
        drawn = svg.bars("Lead", "percentage points", leads, "points")
        yield card(f"Lead over {result['sensitivity']['between'][1]}", drawn, "With double the input.")
    days = np.array(result["timeline"]["days_percent"], np.float64)
    line = Curve("useful", np.arange(1.0, len(days) + 1), days)
    yield card("One job, day by day", svg.draw(Chart("Days", "day", "useful, %", [line], dots=True)))


def _buckets(networks: list[Answer]) -> str:
    names = ["useful", *networks[0]["lost_percent"]]

    def value(each: Answer, name: str) -> float:
        return float(each["goodput_percent"]["mean"] if name == "useful" else each["lost_percent"][name])

    body = [(name, *(f"{value(each, name):.3f}" for each in networks)) for name in names]
    return rows(("", *(each["title"] for each in networks)), body, range(1, 1 + len(networks)))


def _causes(each: Answer) -> str:
    body = [
        (row["cause"].replace("_", " "), row["where"], f"{row['count']:,.1f}", f"{row['stops']:,.1f}",
         f"{row['lost_percent']:.3f}", f"{100 * (row['step'] / each['calm_step'] - 1):.2f}",
         f"{1e3 * row['once_s']:,.3g}")
        for row in each["causes"][:MOST_ROWS]
    ]  # fmt: skip
    head = ("failure", "of", "a job", "stops", "lost, %", "step longer by, %", "once, ms")
    return rows(head, body, range(2, 7))


def turning(result: Answer) -> list[str]:
    """Return the break-even values as sentences."""
    found = result["break_even"]
    one, other = found["between"]
    said = [f"{one} leads {other} by {found['lead_percent']:.2f} percentage points of goodput."]

    def line(name: str, value: float | None, unit: str, between: str) -> str:
        return (
            f"{name}: the other network leads beyond {value:,.3g} {unit}."
            if value is not None
            else f"{name}: the same network leads at every value from {between}."
        )

    said.append(line("Restart time", found["restart_s"], "s", "1 s to 2 hours"))
    said.append(line("NIC link flaps", found["nic_flap_mtbf_hours"], "hours between flaps of a link",
                     "a hundredth of the rate to a hundred times the rate"))  # fmt: skip
    said.append(line("Time until a NIC stops using a dead port", found["remap_s"], "s", "10 ms to 1 hour"))
    price = found["gpu_hour_price"]
    if price == 0.0:
        said.append(f"Price: {one} is the cheaper network with these parts and leads.")
    elif price is None:
        said.append(f"Price: {one} does not pay for itself at any price of a GPU-hour.")
    else:
        said.append(f"Price: {one} pays for itself from {price:,.3g} a GPU-hour, in the parts file's unit, over "
                    f"{found['lifetime_months']} months.")  # fmt: skip
    return said


def _policies(policies: list[Answer]) -> str:
    names = [name for name in policies[0] if name != "network"]
    body = [(each["network"], *(f"{each[name]:g}" for name in names)) for each in policies]
    return rows(("network", *(name.replace("_", " ") for name in names)), body, range(1, 1 + len(names)))


def _worst_day(found: Answer) -> str:
    moments = found["worst_day_moments"]
    body = [
        (f"{each['hour'] % 24:05.2f}", each["cause"].replace("_", " "), each["what"], f"{each['seconds']:,.1f}")
        for each in moments[:MOST_MOMENTS]
    ]
    share = found["days_percent"][found["worst_day"]]
    note = f"<p>{escape(found['network'])}: {share:.1f} % of the day was useful.</p>"
    return note + rows(("hour", "cause", "what", "seconds"), body, (0, 3))
