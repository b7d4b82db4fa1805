"""Draw the six pictures of docs/how-mrc-works.md from captures of simulated runs.

    python examples/how_mrc_works.py            # runs the scenarios of examples/how, writes docs/images/how/*.svg
    python examples/how_mrc_works.py FOLDER     # the pictures go there instead

Each picture is drawn from what `mrc decode --json` prints of a capture, so a reader can look at every packet in it.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from openmrc.report.svg import PICTURE_COLOURS, shown, standalone, ticks

HERE = Path(__file__).parent
FOLDER = HERE.parent / "docs" / "images" / "how"
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 270, 76, 24, 44  # px
WRITE = range(0xC6, 0xCC)  # opcodes of the six kinds of WRITE packets
SACK, NACK, PROBE = 0xDC, 0xDD, 0xDE
FIRST_EV = 0xC000  # the source port of a path is this and its number
Packet = dict[str, Any]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """Points of one colour, joined by a line or not."""

    label: str
    points: Points
    is_joined: bool = False


def captured(scenario: str, nic: str, at: Path) -> list[Packet]:
    """Run a scenario and return the packets that a NIC sent and received, with times in us and the plane."""
    run = ["mrc", "sim", "run", str(HERE / "how" / f"{scenario}.yaml"), "--capture", nic, "--out", str(at)]
    subprocess.run(run, check=True, capture_output=True)
    decode = ["mrc", "decode", str(at / f"{nic}.pcapng"), "--json"]
    lines = subprocess.run(decode, check=True, capture_output=True, text=True).stdout.splitlines()
    packets = [json.loads(line) for line in lines]
    for packet in packets:
        _, plane, own = packet["interface"].split()
        packet |= {"us": packet["time_ns"] / 1000, "plane": int(plane), "is_sent": packet["srv6"]["source"] == own}
    return packets


def writes(packets: Sequence[Packet], *, is_sent: bool) -> list[Packet]:
    """Return the packets with data, in order."""
    return [each for each in packets if each["bth"]["opcode"] in WRITE and each["is_sent"] == is_sent]


def placement(packets: Sequence[Packet]) -> str:
    """Where each arriving packet is placed in memory, by its plane."""
    data = writes(packets, is_sent=False)
    series = [
        Series(f"plane {plane}", [(each["us"], each["reth"]["va"] / 1024) for each in data if each["plane"] == plane])
        for plane in range(4)
    ]
    return plot("arrives at, us", "place in memory, KiB", series)


def selective(packets: Sequence[Packet]) -> str:
    """What has been sent, and what the SACKs say of it."""
    data = writes(packets, is_sent=True)
    reports = [each for each in packets if each["bth"]["opcode"] == SACK and not each["is_sent"]]
    series = [
        Series("sent", [(each["us"], each["bth"]["psn"]) for each in data if not each["bth"]["rtx"]]),
        Series("sent again", [(each["us"], each["bth"]["psn"]) for each in data if each["bth"]["rtx"]]),
        Series("SACK: everything up to here has arrived", edges(reports), is_joined=True),
        Series("SACK: the latest that has arrived", list(latest(reports)), is_joined=True),
    ]
    return plot("time at the sender, us", "PSN", series)


def edges(reports: Sequence[Packet]) -> Points:
    """Return the left edge by time; reports of different planes overtake each other, an edge does not go back."""
    found: Points = []
    for each in reports:
        edge = each["seth"]["cack_psn"]
        if not found or edge > found[-1][1]:
            found.append((each["us"], edge))
    return found


def latest(reports: Sequence[Packet]) -> Iterator[tuple[float, float]]:
    """Yield the highest PSN that the bitmaps have shown by then."""
    highest = 0
    for each in reports:
        seth = each["seth"]
        highest = max(highest, seth["cack_psn"] + seth["sack_offset"] + seth["sack_bitmap"].bit_length() - 1)
        yield each["us"], highest


def trimming(packets: Sequence[Packet]) -> str:
    """One sender's packets at a receiver that three write to: whole, trimmed, asked for again, and there."""
    data = writes(packets, is_sent=False)
    queue_pair = min(each["bth"]["dqp"] for each in data)
    ours = [each for each in data if each["bth"]["dqp"] == queue_pair]
    asked = [each for each in packets if each["bth"]["opcode"] == NACK and each["neth"]["spdcid"] == queue_pair]
    whole = [each for each in ours if not each.get("trimmed")]
    series = [
        Series("arrives whole", [(each["us"], each["bth"]["psn"]) for each in whole if not each["bth"]["rtx"]]),
        Series("arrives trimmed", [(each["us"], each["bth"]["psn"]) for each in ours if each.get("trimmed")]),
        Series("NACK leaves", [(each["us"] + 0.15, each["neth"]["nack_psn"]) for each in asked if each["is_sent"]]),
        Series("arrives again, whole", [(each["us"], each["bth"]["psn"]) for each in whole if each["bth"]["rtx"]]),
    ]
    return plot("time at the receiver, us", "PSN", series)


def life(packets: Sequence[Packet]) -> str:
    """One EV whose cable is out: data, probes without an answer, answers, data."""
    (ev,) = {each["ev"] for each in packets if each["is_sent"] and crosses(each)}
    of_ev = [each for each in packets if each["ev"] == ev and each["is_sent"]]
    answers = [each for each in packets if each.get("seth", {}).get("pr") and not each["is_sent"]]
    rows = {
        "data": [each for each in of_ev if each["bth"]["opcode"] in WRITE],
        "probe": [each for each in of_ev if each["bth"]["opcode"] == PROBE],
        "answer": [each for each in answers if each["seth"]["entropy"] == ev - FIRST_EV],
    }
    names = dict(enumerate(reversed(rows)))
    place = {name: number for number, name in names.items()}
    series = [Series("", [(each["us"], place[name]) for each in found]) for name, found in rows.items()]
    return plot("time at the sender, us", f"EV {ev:#x}", series, shades=[(100, 300)], names=names)


def crosses(packet: Packet) -> bool:
    """Tell whether a packet takes the cable that is out: from T0 0 to T1 2 of plane 0."""
    usids: list[str] = packet["srv6"]["usids"]
    return packet["plane"] == 0 and usids[:2] == ["1000", "2002"]


def outage(packets: Sequence[Packet]) -> str:
    """The rate on each plane, while a cable of plane 0 and then plane 1 are out."""
    data = writes(packets, is_sent=True)
    span = 10.0  # us
    series = []
    for plane in range(4):
        bits = [0.0] * int(data[-1]["us"] / span)
        for each in data:
            if each["plane"] == plane and each["us"] < len(bits) * span:
                bits[int(each["us"] / span)] += 8 * each["payload_length"]
        points = [(number * span, sent / span / 1000) for number, sent in enumerate(bits)]
        series.append(Series(f"plane {plane}", points, is_joined=True))
    return plot("time at the sender, us", "Gb/s", series, shades=[(100, 300), (500, 600)])


def path(sent: Sequence[Packet], arrived: Sequence[Packet]) -> str:
    """The address of one packet at each switch of its path; the first and the last are captured."""
    first = next(each for each in sent if each["is_sent"] and each["bth"]["opcode"] in WRITE and each["plane"] == 3)
    (last,) = (each for each in arrived if each["bth"] == first["bth"])
    block, usids = f"fcbb:bb{first['plane']:02x}", list(first["srv6"]["usids"])
    places = ["leaves h0", "after T0 0", "after T1", "after T0 1, at h4"]
    left = [usids[number:] for number in range(len(places))]
    assert left[-1] == last["srv6"]["usids"]
    parts = []
    for number, (place, words) in enumerate(zip(places, left, strict=True)):
        y = 34 + 52 * number
        parts.append(f'<text x="0" y="{y}">{escape(place)}</text>')
        for at, word in enumerate([block, *words]):
            x, width = (130, 100) if at == 0 else (240 + 76 * (at - 1), 66)
            colour = PICTURE_COLOURS[1] if at == 1 else PICTURE_COLOURS[7]
            frame = f'fill="none" stroke="{colour}" stroke-width="{2 if at == 1 else 1}"'
            parts.append(f'<rect x="{x}" y="{y - 18}" width="{width}" height="26" {frame}/>')
            parts.append(f'<text x="{x + width / 2}" y="{y}" text-anchor="middle">{word}</text>')
    parts.append('<text x="130" y="234">orange: the uSID (16 bits) that the next switch looks up and takes off</text>')
    return f'<svg viewBox="0 0 {WIDTH} 244" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def plot(
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    shades: Sequence[tuple[float, float]] = (),
    names: Mapping[int, str] | None = None,
    until: float = float("inf"),
) -> str:
    """Return points and lines over time, with a legend inside; shaded where something is out."""
    series = [Series(each.label, [at for at in each.points if at[0] <= until], each.is_joined) for each in series]
    every = [point for each in series for point in each.points]
    right, top = min(until, max(x for x, _ in every)), max(y for _, y in every) * 1.05 + (0.5 if names else 0)
    low = -0.5 if names else 0.0
    base = HEIGHT - BOTTOM

    def x(value: float) -> float:
        return LEFT + value / right * (WIDTH - LEFT - 12)

    def y(value: float) -> float:
        return base - (value - low) / (top - low) * (base - TOP)

    parts = [
        f'<rect class="shade" x="{x(begin):.1f}" y="{TOP}" width="{x(end) - x(begin):.1f}" height="{base - TOP}"/>'
        for begin, end in shades
    ]
    for value in names or ticks(0, top, 5):
        text = names[int(value)] if names else shown(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    parts += [
        f'<text x="{x(at):.1f}" y="{base + 17}" text-anchor="middle">{shown(at)}</text>' for at in ticks(0, right, 8)
    ]
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 12}" y1="{base}" y2="{base}"/>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="0" y="{TOP - 8}">{escape(y_label)}</text>')
    named = [each for each in series if each.label]
    for number, each in enumerate(series):
        parts += drawn(each, PICTURE_COLOURS[number], x, y)
    for number, each in enumerate(named):
        across, down = LEFT + 280 * (number % 2), HEIGHT + 16 + 18 * (number // 2)
        parts.append(f'<circle cx="{across}" cy="{down - 4}" r="4" fill="{PICTURE_COLOURS[number]}"/>')
        parts.append(f'<text x="{across + 10}" y="{down}">{escape(each.label)}</text>')
    height = HEIGHT + 18 * ((len(named) + 1) // 2)
    return f'<svg viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def drawn(series: Series, colour: str, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """Return a line, or a dot for each point."""
    places = [(x(across), y(up)) for across, up in series.points]
    if series.is_joined:
        (across, up), *later = places
        steps = "".join(f"H{across:.1f}V{up:.1f}" for across, up in later)
        return [f'<path class="curve" d="M{across:.1f} {up:.1f}{steps}" stroke="{colour}"/>']
    return [f'<circle cx="{across:.1f}" cy="{up:.1f}" r="2.6" fill="{colour}"/>' for across, up in places]


def main() -> None:
    """Run the scenarios and write the pictures."""
    to = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        sender = captured("one-write", "h0", runs / "sender")
        receiver = captured("one-write", "h4", runs / "receiver")
        crowd = captured("incast", "h0", runs / "incast")
        long = captured("outage", "h0", runs / "outage")
    pictures = {
        "placement": ("Packets over four planes are placed as they arrive", placement(receiver)),
        "sack": ("Selective acknowledgements tell what is missing", selective(sender)),
        "trimming": ("Three senders: a trimmed packet is asked for at once", trimming(crowd)),
        "ev": ("A cable is out for 200 us: the life of one EV", life(long)),
        "plane": ("A cable of plane 0 is out, then plane 1", outage(long)),
        "usids": ("The destination address lists the switches", path(sender, receiver)),
    }
    for name, (title, picture) in pictures.items():
        (to / f"{name}.svg").write_text(standalone(picture, title), encoding="utf-8")
        print(f"{to / name}.svg")


if __name__ == "__main__":
    main()
