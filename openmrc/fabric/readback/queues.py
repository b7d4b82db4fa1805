"""Queues, classes and filters of tc, and what they may do to packets of the fabric (tc(8)).

A queue is understood if it drops only what the plan's would: nothing below the buffer of its port, at the rate of its
port. Filters may choose a class or accept; all else that they do counts as what may stop packets. iproute2 6.1 prints
the classes of HTB as text, also where it is asked for JSON.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from openmrc.fabric.model.port_settings import PortSettings
from openmrc.fabric.readback.dump import Row, Sections

QUEUES, FILTERS = "tc queue", "tc filter"
_NO_QUEUE = ("noqueue", "mq")
_HOOKS = ("clsact", "ingress")  # what they do is in their filters
_HARMLESS_ACTION = ("pass", "ok", "pipe", "continue", "reclassify")  # verdicts of gact (tc-actions(8))
_CHOOSES = ("u32", "flower", "basic", "fw", "matchall", "flow")
_CLASS = re.compile(r"class htb (\S+) .*?rate (\S+) ceil (\S+) ")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE = re.compile(r"([0-9.]+)([KMGT]?)bit")
_LONGEST = 4242  # bytes: the longest MRC packet
_LEAST_SHARE = 100  # part of its port's rate that a class has of its own: the plan's smallest is a tenth
_ROUNDED = 0.999  # of a rate that tc prints
_LEAST_PACKETS = 64  # of a default queue that counts packets: a window of one queue pair
_LAB_PROGRAM = "openmrc-"  # begin of a name in the BPF file system (`openmrc.lab`)


def of_tc(queues: list[Any], classes: str, filters: Mapping[str, Any]) -> Sections:
    """Return the sections of `tc -j -d qdisc show`, `tc class show` of all ports, and filters by port and direction."""
    rows: dict[str, list[Row]] = {}
    for row in queues:
        rows.setdefault(str(row.get("dev")), []).append(row)
    return {QUEUES: {**rows, "": _classes(classes)}, FILTERS: dict(filters)}


def _classes(text: str) -> dict[str, list[str]]:
    """Return the lines of classes by port; each port's begin with `# PORT`."""
    found: dict[str, list[str]] = {}
    port = ""
    for line in text.splitlines():
        if line.startswith("# "):
            port = line[2:]
        elif line.strip():
            found.setdefault(port, []).append(f"{line} ")
    return found


def stops(ports: Mapping[str, PortSettings], found: Sections) -> Iterator[tuple[str, str]]:
    """Yield (port, queue) of queues that may drop or delay more than the plan's."""
    section = found.get(QUEUES, {})
    for name, settings in ports.items():
        for row in section.get(name, ()):
            if why := _queue(row, settings):
                yield name, f"queue {row.get('kind')} {row.get('handle')} {why}"
        for line in section.get("", {}).get(name, ()):
            if why := _class(line, settings):
                yield name, why


def _queue(row: Row, settings: PortSettings) -> str:
    """Return why a queue is not understood as harmless, or an empty string."""
    kind, options = str(row.get("kind")), row.get("options")
    if not isinstance(options, dict) or {"ingress_block", "egress_block"} & set(row):
        return "has shared filters"
    limit = options.get("limit", 0)
    if kind in (*_NO_QUEUE, *_HOOKS, "htb", "pfifo_fast"):
        return ""
    if kind in ("bfifo", "red"):
        is_red = kind == "red" and not (options.get("ecn") and options.get("min", 0) >= settings.mark_low)
        return f"limit {limit}" if limit < settings.drop_above or is_red else ""
    if kind == "pfifo":
        return f"limit {limit}" if limit < max(_LEAST_PACKETS, settings.drop_above // _LONGEST) else ""
    if kind == "fq_codel":
        default = limit >= 1000 and options.get("target", 0) >= 4000 and options.get("memory_limit", 0) >= 1 << 20
        return "" if default else f"limit {limit}"
    return "is not understood"


def _class(line: str, settings: PortSettings) -> str:
    """Return why a class of HTB sends less than its port, or an empty string."""
    match = _CLASS.match(line)
    if match is None:
        return f"{line.strip()}: not understood"
    rate, ceil = map(_rate, match.groups()[1:])
    slow = ceil < settings.rate * _ROUNDED or rate < settings.rate / _LEAST_SHARE
    return f"class {match[1]} rate {match[2]} ceil {match[3]}" if slow else ""


def _rate(text: str) -> float:
    match = _RATE.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0


def filter_stops(ports: Mapping[str, PortSettings], found: Sections) -> Iterator[tuple[str, str]]:
    """Yield (port, filter) of filters that may do more than choose a class."""
    for where, rows in found.get(FILTERS, {}).items():
        for row in rows if where.split(" ")[0] in ports else ():
            if isinstance(row, dict) and "options" in row and (why := _filter(row)):
                yield where.split(" ")[0], f"{where} {row.get('kind')} pref {row.get('pref')} {why}".strip()


def _filter(row: Row) -> str:
    options = row["options"]
    if not isinstance(options, dict):
        return "is not understood"
    if row.get("kind") == "bpf":
        return "" if _is_lab_program(row) else f"program {options.get('bpf_name', '')}"
    for action in options.get("actions", ()):
        kind, control = str(action.get("kind")), str(action.get("control_action", {}).get("type", ""))
        if kind != "gact" or control not in _HARMLESS_ACTION:
            return f"{kind} {control}"
    return "" if row.get("kind") in _CHOOSES else "is not understood"


def _is_lab_program(row: Any) -> bool:
    name = str(row.get("options", {}).get("bpf_name", "")) if isinstance(row, dict) else ""
    return name.startswith(_LAB_PROGRAM)


def has_lab_programs(found: Sections) -> bool:
    """Whether ports have the lab's program, whose faults are the cable's, not the switch's."""
    return any(_is_lab_program(row) for rows in found.get(FILTERS, {}).values() for row in rows)
