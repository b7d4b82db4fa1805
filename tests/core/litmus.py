"""Whether AArch64 allows the outcome of a litmus test: its axiomatic model (Arm ARM, B2.3), over all executions.

A test is a file as `herd7` reads it, with these instructions: MOV, LDR, LDAR, LDAPR, STR, STLR, SWP in its four orders,
CBZ and CBNZ forward, DMB ISH, DMB ISHLD. Reads guess their value. An execution is a choice of the write that each read
takes its value from, and an order of the writes to each place; a cycle in what comes before what forbids it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

VALUES = (0, 1, 2)
_REGISTER = r"[WX](ZR|\d+)"


class Event(NamedTuple):
    """An access, or a fence."""

    thread: int
    place: str  # a variable; empty: a fence
    is_write: bool
    value: int
    acquires: str = ""  # "A": LDAR and exchanges, "Q": LDAPR; of a fence: "full" or "ld"
    releases: bool = False
    needs: frozenset[int] = frozenset()  # numbers of reads of its thread, whose values it stores or branches on
    exchanged: int = -1  # number of the read of the same exchange


Trace = tuple[tuple[Event, ...], dict[str, int]]
Edges = set[tuple[int, int]]


class Litmus:
    """A test."""

    def __init__(self, text: str) -> None:
        head, _, rest = text.partition("{")
        setting, _, rest = rest.partition("}")
        code, _, self._condition = rest.partition("exists")
        self.name = head.split()[1]
        self._registers = dict(re.findall(r"(\d+:X\d+)=(\w+)", setting))
        rows = [[cell.strip() for cell in row.split("|")] for row in code.split(";") if "|" in row]
        self._programs = [[row[thread] for row in rows[1:] if row[thread]] for thread in range(len(rows[0]))]

    def is_allowed(self) -> bool:
        """Whether some execution ends as the test says."""
        threads = [list(self._traces(number)) for number in range(len(self._programs))]
        return any(self._is_reached(chosen) for chosen in itertools.product(*threads))

    def _traces(self, thread: int) -> Iterator[Trace]:
        """Yield what a thread may do, for every guess of what it reads."""
        program = self._programs[thread]
        reads = sum(line.startswith(("LD", "SWP")) for line in program)
        seen = set()
        for guesses in itertools.product(VALUES, repeat=reads):
            trace = self._run(thread, program, iter(guesses))
            if (key := str(trace)) not in seen:
                seen.add(key)
                yield trace

    def _run(self, thread: int, program: list[str], guesses: Iterator[int]) -> Trace:
        values: dict[str, int] = {}
        sources: dict[str, frozenset[int]] = {}
        events: list[Event] = []
        branched: frozenset[int] = frozenset()
        at = 0
        while at < len(program):
            name, *words = re.split(r"[\s,]+", program[at])
            at += 1
            registers = [re.sub(r"^W", "X", word.strip("[]")) for word in words]
            if name == "MOV":
                values[registers[0]], sources[registers[0]] = int(words[1].strip("#")), frozenset()
            elif name in ("CBZ", "CBNZ"):
                branched |= sources[registers[0]]
                if (values[registers[0]] == 0) == (name == "CBZ"):
                    at = program.index(f"{words[1]}:") + 1
            elif name == "DMB":
                events.append(Event(thread, "", False, 0, "full" if words[0] == "ISH" else "ld"))
            elif name in ("LDR", "LDAR", "LDAPR"):
                kind = {"LDR": "", "LDAR": "A", "LDAPR": "Q"}[name]
                values[registers[0]], sources[registers[0]] = next(guesses), frozenset({len(events)})
                events.append(Event(thread, self._place(thread, registers[1]), False, values[registers[0]], kind))
            elif name in ("STR", "STLR"):
                place, value = self._place(thread, registers[1]), values[registers[0]]
                events.append(Event(thread, place, True, value, "", name == "STLR", branched | sources[registers[0]]))
            elif name.startswith("SWP"):
                place, read = self._place(thread, registers[2]), len(events)
                values[registers[1]], sources[registers[1]] = next(guesses), frozenset({read})
                events.append(Event(thread, place, False, values[registers[1]], "A" if "A" in name[3:] else ""))
                needs = branched | sources[registers[0]]
                events.append(Event(thread, place, True, values[registers[0]], "", "L" in name[3:], needs, read))
        return tuple(events), {f"{thread}:{register}": value for register, value in values.items()}

    def _place(self, thread: int, register: str) -> str:
        return str(self._registers[f"{thread}:{register}"])

    def _is_reached(self, chosen: tuple[Trace, ...]) -> bool:
        final = {name: value for _, values in chosen for name, value in values.items()}
        if any(final.get(name, 0) != int(value) for name, value in re.findall(r"(\d+:X\d+)=(\d+)", self._condition)):
            return False
        events: list[Event] = []
        for trace, _ in chosen:
            first = len(events)
            for event in trace:
                needs = frozenset(first + number for number in event.needs)
                exchanged = first + event.exchanged if event.exchanged >= 0 else -1
                events.append(event._replace(needs=needs, exchanged=exchanged))
        return any(
            self._ends_so(events, orders) and _is_possible(events, orders, source)
            for orders in _orders(events)
            for source in _sources(events)
        )

    def _ends_so(self, events: list[Event], orders: dict[str, tuple[int, ...]]) -> bool:
        for place, value in re.findall(r"(?<![\w:])([a-z])=(\d+)", self._condition):
            if not orders.get(place) or events[orders[place][-1]].value != int(value):
                return False
        return True


def _orders(events: list[Event]) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield every order of the writes to each place."""
    places = sorted({event.place for event in events if event.place})
    writes = [[n for n, event in enumerate(events) if event.is_write and event.place == place] for place in places]
    for orders in itertools.product(*(itertools.permutations(each) for each in writes)):
        yield dict(zip(places, orders, strict=True))


def _sources(events: list[Event]) -> Iterator[dict[int, int]]:
    """Yield for every read the write that it may take its value from; -1: the beginning, which is 0."""
    reads = [n for n, event in enumerate(events) if event.place and not event.is_write]
    choices = []
    for read in reads:
        place, value = events[read].place, events[read].value
        found = [n for n, each in enumerate(events) if each.is_write and (each.place, each.value) == (place, value)]
        choices.append([*found, *([-1] if value == 0 else [])])
    for chosen in itertools.product(*choices):
        yield dict(zip(reads, chosen, strict=True))


def _is_possible(events: list[Event], orders: dict[str, tuple[int, ...]], source: dict[int, int]) -> bool:
    """Whether the model has such an execution."""
    co = {(a, b) for order in orders.values() for a, b in itertools.combinations(order, 2)}
    rf = {(write, read) for read, write in source.items() if write >= 0}
    fr = {(read, later) for read, write in source.items() for later in orders[events[read].place]
          if later != write and (write < 0 or (write, later) in co)}  # fmt: skip
    po = {(a, b) for a, b in itertools.combinations(range(len(events)), 2) if events[a].thread == events[b].thread}
    same = {(a, b) for a, b in po if events[a].place == events[b].place != ""}
    between = [(events[each.exchanged], n) for n, each in enumerate(events) if each.exchanged >= 0]
    for _, write in between:  # an exchange: nothing comes between its two halves
        order, read = orders[events[write].place], events[write].exchanged
        at = order.index(write)
        if source[read] != (order[at - 1] if at else -1):
            return False
    if _has_cycle(same | co | rf | fr):
        return False
    outside = {(a, b) for a, b in co | rf | fr if events[a].thread != events[b].thread}
    return not _has_cycle(outside | _ordered(events, po, rf))


def _ordered(events: list[Event], po: Edges, rf: Edges) -> Edges:
    """Return what the program orders: dependencies, exchanges, acquires, releases, fences."""
    edges: Edges = set()
    for a, b in po:
        first, second = events[a], events[b]
        if a in second.needs or second.exchanged == a or (first.acquires in ("A", "Q") and first.place):
            edges.add((a, b))
        if second.releases or (first.releases and second.acquires == "A"):
            edges.add((a, b))
        for number in range(a + 1, b):
            fence = events[number].acquires if not events[number].place else ""
            if fence == "full" or (fence == "ld" and not first.is_write):
                edges.add((a, b))
        edges |= {(a, read) for write, read in rf if write == b and a in second.needs and (b, read) in po}
    return edges


def _has_cycle(edges: Edges) -> bool:
    left = set(edges)
    while left:
        targets = {b for _, b in left}
        kept = {(a, b) for a, b in left if a in targets}
        if kept == left:
            return True
        left = kept
    return False
