"""The page of a month: what a job loses on each network, and where the answer turns."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from openmrc.fabric.model.parts import Basis
from openmrc.planner.causes import in_words
from openmrc.planner.comparison import TITLES
from openmrc.planner.outcome import phrase, sentence
from openmrc.planner.policy import KNOWN
from openmrc.report import svg
from openmrc.report.page import card, folded, page, rows, section, tile
from openmrc.report.svg import Chart, Curve

Answer = dict[str, Any]
MOST_ROWS = 12
MOST_INPUTS = 12  # in a picture and on the terminal
SWINGS = "What the low and the high end of an input's range move; the ranges are in the table of all inputs."
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
    head = ("", *(each["title"] for each in result["networks"]))
    yield "<h2>Where the time goes, percent</h2>" + rows(head, figure_rows(result["networks"]), range(1, len(head)))
    for each in result["networks"]:
        yield f"<h2>Failures on {escape(each['title'])}, {escape(each['design'])}</h2>" + _causes(each)
    if "break_even" in result:
        turns = [*turning(result), *order(result["sensitivity"])]
        yield "<h2>Where the answer turns</h2>" + "".join(f"<p>{escape(text)}</p>" for text in turns)
        yield "<h2>Best policy for each network</h2>"
        yield rows(POLICY_HEAD, policy_rows(result["best_policies"]), range(1, len(POLICY_HEAD)))
    found = result.get("sensitivity", {"order": (), "inputs": result["inputs"]})
    head = input_head(found["order"])
    table = rows(head, input_rows(found["inputs"], found["order"]), range(2, len(head)))
    yield section("All inputs", f"<p>{bases(found['inputs'])}</p>{table}")
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
        for title, drawn in tornados(result["sensitivity"]):
            yield card(title, drawn, SWINGS)


def tornados(found: Answer) -> list[tuple[str, str]]:
    """Return pictures of what the inputs move: the goodput of the first network and its best rival, and the lead."""
    one, other = found["between"]
    shown: list[tuple[str, Callable[[Answer], float]]] = [
        (f"Goodput with {phrase(one)}", lambda moves: moves[one]),
        (f"Goodput with {phrase(other)}", lambda moves: moves[other]),
        (f"Lead of {phrase(one)} over {phrase(other)}", lambda moves: moves[one] - moves[other]),
    ]
    made = []
    for title, of in shown:
        moved = [(_ranged(row), of(row["ends"][0]["moves"]), of(row["ends"][1]["moves"])) for row in found["inputs"]]
        moved.sort(key=lambda row: -max(abs(row[1]), abs(row[2])))
        made.append((title, svg.tornado(title, f"{title}: percentage points", moved[:MOST_INPUTS], DECIMALS)))
    return made


def sensitivity_picture(result: Answer) -> str:
    """Return these pictures as a file of their own."""
    title = "What moves the answer, within the range of each input"
    return svg.standalone(svg.stacked(title, [drawn for _, drawn in tornados(result["sensitivity"])]), title)


def _ranged(row: Answer) -> str:
    """Return an input with its value, its range, and what it rests on."""
    return f"{row['name']}: {_said(row, row['given'])} ({_range(row)}), {row['basis']}"


def _range(row: Answer) -> str:
    """Return both ends of an input's range."""
    return f"{_said(row, row['low']).removesuffix(row['unit']).strip()} to {_said(row, row['high'])}"


def _said(row: Answer, value: float) -> str:
    """Return a value of an input with its unit; a switch is on or off."""
    if isinstance(row["given"], bool):
        return "on" if value else "off"
    return f"{_number(value)} {row['unit']}".strip()


def input_head(networks: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table of inputs: those that are always known, and one a network."""
    return "input", "rests on", "value", "range", *(f"{TITLES[each]}, points" for each in networks)


def input_rows(inputs: Sequence[Answer], networks: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a row an input under `input_head`; of each network, what both ends move."""
    return [
        (row["name"], row["basis"], _said(row, row["given"]), _range(row),
         *("{:+.2f} / {:+.2f}".format(*(end["moves"][network] for end in row["ends"])) for network in networks))
        for row in inputs
    ]  # fmt: skip


def bases(inputs: Sequence[Answer]) -> str:
    """Return how many inputs rest on what, as a sentence."""
    counts = Counter(row["basis"] for row in inputs)
    return (
        f"Of {len(inputs)} inputs, " + ", ".join(f"{counts[each]} are {each}" for each in Basis if counts[each]) + "."
    )


def order(found: Answer) -> list[str]:
    """Return the order of the networks, and by which values of which inputs it turns."""
    turned = [
        f"{row['name']}, {_said(row, row[end])} instead of {_said(row, row['given'])}: "
        + "; ".join(f"{phrase(one)} passes {phrase(other)}" for one, other in ends["turns"])
        + "."
        for row in found["inputs"]
        for end, ends in zip(("low", "high"), row["ends"], strict=True)
        if ends["turns"]
    ]
    ranked = f"Order of goodput: {', '.join(phrase(each) for each in found['order'])}. "
    return [ranked + (f"It turns by {len(turned)} values:" if turned else "No input turns it."), *turned]


def figure_rows(networks: list[Answer]) -> list[tuple[str, ...]]:
    """Return what each network loses and why, a row a figure."""
    shown = [
        ("lost to the network", "{network_lost_percent:.2f}"),
        ("lost to hosts and software", "{host_lost_percent:.2f}"),
        ("lost to checkpoints", "{policy_lost_percent:.2f}"),
        ("won by a spare for every host", "{won_by_spares_percent:.2f}"),
        ("goodput", "{goodput_percent[mean]:.2f}"),
        ("5th to 95th percentile", "{goodput_percent[p5]:.1f} to {goodput_percent[p95]:.1f}"),
        *((f"  {name}", f"{{lost_percent[{name}]:.3f}}") for name in networks[0]["lost_percent"]),
        ("stops by the network, a job", "{network_stops:,.1f}"),
        ("stops by hosts and software, a job", "{host_stops:,.1f}"),
        ("GPU-hours lost to the network", "{network_gpu_hours:,.0f}"),
    ]
    return [(label, *(form.format(**each) for each in networks)) for label, form in shown]


def _causes(each: Answer) -> str:
    body = [
        (in_words(row["cause"]), row["where"], f"{row['count']:,.1f}", f"{row['stops']:,.1f}",
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
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _price(one: str, found: Answer) -> str:
    """Return from which price of a GPU-hour the first network pays for itself."""
    price = found["gpu_hour_price"]
    if price == 0.0:
        return f"Price: {one} is the cheaper network with these parts, and leads."
    if price is None:
        return f"Price: {one} does not pay for itself at any price of a GPU-hour."
    return (
        f"Price: {one} pays for itself from {price:,.3g} a GPU-hour, in the parts file's unit, over "
        f"{found['lifetime_months']} months."
    )


POLICY_HEAD = (
    "network",
    *(KNOWN[name].words for name in ("checkpoint_s", "spares", "patience_s", "evict", "most_lost")),
    "goodput",
)


def policy_rows(policies: list[Answer]) -> list[tuple[str, ...]]:
    """Return the best policy of each network under `POLICY_HEAD`."""
    return [
        (TITLES[each["network"]], f"{each['checkpoint_s']:g} s", f"{100 * each['spares']:g} %",
         f"{each['patience_s']:g} s", "yes" if each["evict"] else "no", f"{each['most_lost']}",
         f"{each['goodput_percent']:.2f} %")
        for each in policies
    ]  # fmt: skip
