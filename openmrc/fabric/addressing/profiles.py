"""EV profiles: the paths that an endpoint may use to a destination, in the form that the endpoint expands.

Bits in which the paths' addresses never differ are a field's constant part (`init_val`), the others its mask. Explicit
profiles list EVs, whose bits fill the masks in the order of the fields, the highest bit first; generated ones leave the
numbers to the endpoint. Every plane has an equal share, and each host starts at another uplink.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import Choice, choices, path
from openmrc.fabric.addressing.usid import UsidPlan

BLOCK_BITS = 32
USID_BITS = 16

Mode = Literal["explicit", "generated"]


@dataclass(frozen=True)
class ProfileField:
    """Describe one field of the format."""

    width: int
    init: int
    mask: int
    most: int  # largest number that is deposited into the mask; generated profiles only


def extract(value: int, mask: int) -> int:
    """Return the bits of `value` under `mask`, packed."""
    packed = 0
    for bit in range(mask.bit_length() - 1, -1, -1):
        if mask >> bit & 1:
            packed = packed << 1 | (value >> bit & 1)
    return packed


def spread(plan: UsidPlan, source: int, destination: int, count: int) -> list[Choice]:
    """Choose `count` paths, the same number in each plane, evenly over its uplinks from a start per source."""
    planes = [list(choices(sids.shape, source, destination)) for sids in plan.planes]
    each = max(1, count // len(planes))
    taken = []
    for index in range(each):
        for ways in planes:
            if index < len(ways):
                taken.append(ways[(source + index * len(ways) // min(each, len(ways))) % len(ways)])
    return taken


def profile(plan: UsidPlan, source: int, destination: int, mode: Mode, count: int = 256) -> dict[str, Any]:
    """Return {format, profile} of the paths from one NIC to another.

    `count` is the size of an explicit profile; a generated one covers all paths of its planes, of one column of
    spines where the spines of both ends must be the same one.
    """
    listed: dict[str, Any] = {}
    if mode == "generated":
        fields = _generated(plan, source, destination)
    else:
        sid_lists = [_words(plan, source, destination, way) for way in spread(plan, source, destination, count)]
        fields = _fields(sid_lists)
        listed = {"evs": [_hex(fields, word) for word in sid_lists]}
        fields = [replace(field, most=(1 << field.mask.bit_count()) - 1) for field in fields]
    described = [
        {"width": each.width, "init_val": each.init, "min_val": 0, "max_val": each.most, "mask": each.mask}
        for each in fields
    ]
    widths = [field.width for field in fields]
    return {"format": {"mode": "srv6", "widths": widths}, "profile": {"mode": mode, "fields": described, **listed}}


def _words(plan: UsidPlan, source: int, destination: int, way: Choice) -> list[int]:
    return [plan.planes[way.plane].block, *path(plan, source, destination, way).sids]


def _fields(sid_lists: list[list[int]]) -> list[ProfileField]:
    """Split each field into the bits all paths share and those that differ."""
    if len({len(word) for word in sid_lists}) > 1:
        raise ConfigError("paths of different planes differ in length here; one profile cannot hold them")
    fields = []
    for index, values in enumerate(zip(*sid_lists, strict=True)):
        mask = 0
        for value in values:
            mask |= value ^ values[0]
        most = max(extract(value, mask) for value in values)
        fields.append(ProfileField(BLOCK_BITS if index == 0 else USID_BITS, values[0] & ~mask, mask, most))
    return fields


def _generated(plan: UsidPlan, source: int, destination: int) -> list[ProfileField]:
    """Return fields whose free combinations are exactly the addresses of paths."""
    everything = [way for sids in plan.planes for way in choices(sids.shape, source, destination)]
    columns = sorted({way.uplink for way in everything})
    for ways in (everything, [way for way in everything if way.uplink == columns[source % len(columns)]]):
        sid_lists = [_words(plan, source, destination, way) for way in ways]
        fields = _fields(sid_lists)
        if math.prod(field.most + 1 for field in fields) == len({tuple(word) for word in sid_lists}):
            return fields  # every combination of numbers, 0 to the largest, is an address
    raise ConfigError(
        "these paths are not all combinations of independent fields (planes or bundles differ), "
        "so a generated profile would name paths that do not exist; use mode explicit"
    )


def _hex(fields: list[ProfileField], word: list[int]) -> str:
    """Pack the masked bits of an address, most significant first, into whole bytes."""
    bits, packed = 0, 0
    for field, value in zip(fields, word, strict=True):
        width = field.mask.bit_count()
        packed, bits = packed << width | extract(value, field.mask), bits + width
    size = max(1, -(-bits // 8))
    return f"{packed << (8 * size - bits):0{2 * size}x}"
