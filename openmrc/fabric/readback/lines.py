"""Configurations of one statement a line: FRR, EOS, NVUE commands, and batches for ip, tc and sysctl.

A line's item is its words up to what can be set; the rest is its value. What FRR leaves out because it is the default
is left out here too. Blocks are known by their indentation, as both FRR and EOS print them.
"""

import re
from collections.abc import Callable

from openmrc.fabric.readback.dump import Sections

_COMMENT = ("!", "#", "frr version ")
_ENDS = ("exit", "end", "Building configuration...", "Current configuration:")
_DEFAULTS = re.compile(r" func-bits 16$")
_OPENERS = re.compile(
    r"^(interface|router|vrf|micro-segment|locators?|segment-routing|srv6|static-sids|encapsulation|tx-queue|formats?)\b"
)
_WHOLE = re.compile(r"^(ipv6 address|ip address|ntp server)\b")
_WORDS = {
    "ipv6 route": 3, "ip route": 3, "sid": 2, "qos map": 4, "error-correction": 2, "random-detect": 2,
    "source-address": 1, "bandwidth": 1, "priority": 1, "speed": 1, "vrf": 1, "mtu": 1, "description": 1, "hostname": 1,
    "prefix": 1, "block": 1, "behavior": 1,
}  # fmt: skip
# Of routes that lead nowhere (ip-route(8)), before the prefix.
KINDS = ("blackhole", "unreachable", "prohibit", "throw")
_BATCH_WORDS = {"route": 3, "neighbor": 3, "address": 5, "link": 4}
_NVUE_WHOLE = re.compile(r" (ip address|server) \S+$")


def blocks(text: str) -> Sections:
    """Read an indented configuration (FRR, EOS)."""
    found: Sections = {}
    open_blocks: list[tuple[int, str]] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(_COMMENT):
            continue
        depth = len(raw) - len(raw.lstrip())
        while open_blocks and open_blocks[-1][0] >= depth:
            open_blocks.pop()
        if line in _ENDS:
            continue
        is_port = bool(open_blocks) and open_blocks[0][1].startswith("interface ")
        opens = bool(_OPENERS.match(line)) and not (is_port and line.startswith("vrf "))  # which puts it into a VRF
        in_vrf = re.fullmatch(r"(interface \S+) vrf (\S+)", line)  # as FRR opens the block of a port in a VRF
        line = in_vrf[1] if in_vrf else line
        if opens:
            open_blocks.append((depth, line))
        section = " / ".join(name for _, name in open_blocks) or "system"
        if in_vrf:
            _put(found, section, "vrf", in_vrf[2])
        if not opens or line.startswith("locator "):
            _put(found, section, *_split(_DEFAULTS.sub("", line)))
    return found


def _split(line: str) -> tuple[str, str]:
    if line.startswith("no "):
        return line[3:], "no"
    if line.startswith("locator ") or _WHOLE.match(line):
        return line, ""
    words = line.split(" ")
    count = _WORDS.get(" ".join(words[:2])) or _WORDS.get(words[0]) or len(words)
    return " ".join(words[:count]), " ".join(words[count:])


def commands(text: str) -> Sections:
    """Read NVUE commands, except `nv config apply`."""
    found: Sections = {}
    for line in _statements(text):
        if not line.startswith("nv set "):
            continue
        words = line.removeprefix("nv set ")
        section = words.split(" ", 1)[0]
        item, value = (words, "") if _NVUE_WHOLE.search(line) else words.rsplit(" ", 1)
        if " description " in words:
            item, _, value = words.partition(" description ")
            item += " description"
        _put(found, section, item, value)
    return found


def batch(kind: str) -> Callable[[str], Sections]:
    """Return a reader of lines for ip, tc or sysctl; `kind` is the name of their section."""

    def read(text: str) -> Sections:
        found: Sections = {}
        for line in _statements(text):
            _put(found, kind, *_cut(line))
        return found

    return read


def _cut(line: str) -> tuple[str, str]:
    if " = " in line:
        item, _, value = line.partition(" = ")
        return item.strip(), value.strip()
    if " handle " in line:
        item, _, value = line.partition(" handle ")
        return item, f"handle {value}"
    words = line.split(" ")
    if words[0] == "route" and len(words) > 3 and words[2] in KINDS:
        return " ".join(words[:4]), " ".join(words[4:])
    is_class = words[0] == "class" and "htb" in words
    count = words.index("htb") if is_class else _BATCH_WORDS.get(words[0], len(words))
    return " ".join(words[:count]), " ".join(words[count:])


def _statements(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith(_COMMENT)]


def _put(found: Sections, section: str, item: str, value: str) -> None:
    """Record a line; a duplicate gets both values."""
    items = found.setdefault(section, {})
    before = items.get(item)
    if before is None:
        items[item] = (value,)
    elif value not in before:
        items[item] = tuple(sorted((*before, value)))


def by_name(words: list[str]) -> dict[str, str]:
    """Return the words of a line that stand behind their names."""
    return dict(zip(words[::2], words[1::2], strict=False))
