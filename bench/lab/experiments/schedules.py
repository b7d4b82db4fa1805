"""Random faults from a seed: outages of cables, switches and planes, loss, corruption, reduced rates."""

from __future__ import annotations

import random

from openmrc.base.faults import Schedule
from openmrc.lab.layout import Lab

_LEAST_MS, _MOST_MS = 20, 400  # duration of one fault
_MOST_FAULTS = 6
_RATES = ("5Mbps", "20Mbps", "50Mbps")


def random_schedule(lab: Lab, seed: int, seconds: float) -> Schedule:
    """Return one to six faults that begin and end within `seconds`; no fault is left at the end."""
    dice = random.Random(seed)
    steps = [_step(lab, dice, round(seconds * 1000)) for _ in range(dice.randint(1, _MOST_FAULTS))]
    end = f"at: {round(seconds * 1000)}ms, clear: all"
    return Schedule.parse("; ".join([*steps, end]), f"random schedule {seed}")


def _step(lab: Lab, dice: random.Random, length: int) -> str:
    lasts = dice.randint(_LEAST_MS, min(_MOST_MS, length - 1))
    when = f"at: {dice.randint(0, length - lasts)}ms, for: {lasts}ms"
    place = _place(lab, dice)
    match dice.randrange(6):
        case 0:
            return f"{when}, loss: {dice.choice((1, 5, 20))}%, on: {place}"
        case 1:
            return f"{when}, corruption: {dice.choice((1, 5))}%, on: {place}"
        case 2:
            return f"{when}, trim: {dice.choice((5, 30))}%, on: {place}"
        case 3:
            return f"{when}, rate: {dice.choice(_RATES)}, on: {place}"
        case _:
            return f"{when}, down: {place}"


def _place(lab: Lab, dice: random.Random) -> str:
    cable = dice.choice(lab.cables)
    lower, upper = cable.lower.node, cable.upper.node
    return dice.choice((f"{lower}>{upper}", f"{upper}>{lower}", f"{lower}<>{upper}", f"plane {cable.plane}", upper))
