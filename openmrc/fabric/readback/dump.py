"""The content of a file, as sections of named items, and the differences of two such readings.

An exported file and a dump of what runs are read by the same reader, and their sections compared: a table of CONFIG_DB,
a block of a configuration, the routes of a kernel. An item is a row of fields, or the values of a line.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, str]
Sections = dict[str, dict[str, Any]]  # section -> item -> Row, or tuple of the line's values
Matters = Callable[[str, str, Any], bool]  # (section, item, its value) -> whether an unplanned item counts
ROUTES, SIDS, LOCAL = "route", "sid", "local route"  # the sections of entries as a running system shows them
_NOTHING = ("", "false", "0", "disable", "default", "none", "N/A")  # value of an unused field


@dataclass
class Difference:
    """Differences of one switch; items are written `SECTION ITEM: VALUE`."""

    switch: str
    planned: int = 0  # items
    same: int = 0
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    wrong: list[dict[str, str]] = field(default_factory=list)
    ignored: int = 0  # unplanned items that do not forward in the fabric
    unchecked: list[str] = field(default_factory=list)  # what the dump has, or a switch may have, and nobody looked at

    @property
    def clean(self) -> bool:
        return not (self.missing or self.extra or self.wrong)

    @property
    def count(self) -> int:
        return len(self.missing) + len(self.extra) + len(self.wrong)


def compare(into: Difference, planned: Sections, found: Sections, matters: Matters) -> None:
    """Add the differences between `found` and `planned` to `into`; sections that neither has are ignored."""
    for section, items in planned.items():
        here = found.get(section, {})
        into.planned += len(items)
        if here == items:
            into.same += len(items)
            continue
        for item, value in items.items():
            if item not in here:
                into.missing.append(_text(section, item, value))
            else:
                _compare_item(into, (section, item), value, here[item], matters(section, item, value))
    for section, items in found.items():
        known = planned.get(section, {})
        if items is not known and items != known:
            _unplanned(into, section, items, known, matters)


def _compare_item(into: Difference, name: tuple[str, str], planned: Any, found: Any, strict: bool) -> None:
    differing = _differing(planned, found, strict)
    if not differing:
        into.same += 1
        return
    for before, after in differing:
        into.wrong.append({"planned": _text(*name, before), "installed": _text(*name, after)})


def _differing(planned: Any, found: Any, strict: bool) -> list[tuple[Any, Any]]:
    if planned == found:
        return []
    if not (isinstance(planned, dict) and isinstance(found, dict)):
        return [(planned, found)]
    pairs = [({key: value}, {key: found.get(key, "")}) for key, value in planned.items() if found.get(key, "") != value]
    if strict:
        more = {key: value for key, value in found.items() if key not in planned and value not in _NOTHING}
        pairs += [({key: ""}, {key: value}) for key, value in more.items()]
    return pairs


def _unplanned(into: Difference, section: str, items: dict[str, Any], known: dict[str, Any], matters: Matters) -> None:
    for item, value in items.items():
        if item in known:
            continue
        if matters(section, item, value):
            into.extra.append(_text(section, item, value))
        else:
            into.ignored += 1


def _text(section: str, item: str, value: Any) -> str:
    if isinstance(value, dict):
        said = ", ".join(f"{key} {text or 'absent'}" for key, text in value.items())
    else:
        said = " and ".join(value)
    return f"{section} {item}{': ' if said.strip() else ''}{said}".strip()
