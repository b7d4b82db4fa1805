"""Selection of the EVs of a queue pair: the same number on every plane, random paths, no value twice.

Values are those of the EV rows of the engine, which `wire.entropy` places in headers: a source port in UDP mode, 32
bits in STEV, an index into the table of paths in SRV6 (with the source port 0xC000 | index). The values of a queue
pair are unique over all planes: a SACK reflects the value alone and returns on any plane.

The subset is a keyed permutation of the numbers below a limit, so no table is shuffled: a hundred thousand queue
pairs take a few array operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openmrc.errors import InvalidArgumentError, TooBigError
from openmrc.profiles.ev_array import EvEntryState
from openmrc.profiles.ev_configuration import EvMode
from openmrc.profiles.ev_format import EvFormatMode
from openmrc.profiles.ev_profile import EvProfile
from openmrc.wire.entropy import SRV6_INDEX_MASK, SRV6_PORT_BASE

Numbers = NDArray[np.int64]

FIRST_PORT = SRV6_PORT_BASE  # RoCEv2 senders use source ports from here upward
PORT_CHOICES = 0x1_0000 - FIRST_PORT
STEV_CHOICES = 1 << 32
TABLE_SIZE = SRV6_INDEX_MASK + 1

_WORD = (1 << 32) - 1
_SEED = (1 << 63) - 1  # bits of a seed that are used
_MULTIPLIERS = (0x2C1B3C6D, 0x297A2D39, 0x5BD1E995)  # odd and below 2**31: products stay within 63 bits
_ROUNDS = 4  # of the permutation; fewer leave patterns in small tables
NOT_LISTED = -1


@dataclass(frozen=True)
class EvSpread:
    """The EVs of one queue pair; row p is for port p, counted from 0."""

    values: Numbers  # [ports, active + backup]; the first `active` of each row go into rotation
    entries: Numbers  # same shape: position in the profile's array, NOT_LISTED in AUTO mode
    active: int  # of each port

    @property
    def backup(self) -> int:
        """EVs in reserve, of each port."""
        return int(self.values.shape[1]) - self.active


def spread(
    profile: EvProfile | EvFormatMode,
    ports: int,
    active: int,
    backup: int,
    seed: int,
    paths: int | None = None,
) -> EvSpread:
    """Return the EVs of one queue pair: about `active` in rotation and `backup` in reserve, of all ports together.

    Every port gets the same number, at least one; where a profile or a plane has fewer paths, all
    ports get fewer. A format mode instead of a profile means AUTO. `paths` is how many paths the
    SRV6 table has for each plane.
    """
    wanted, seed = _per_port(ports, active, backup), seed & _SEED
    if isinstance(profile, EvProfile) and profile.configuration.mode != EvMode.AUTO:
        return _from_profile(profile, ports, *wanted, seed)
    mode = _auto_mode(profile) if isinstance(profile, EvProfile) else profile
    values = auto_values(mode, ports, sum(wanted), [seed], paths)[0]
    return EvSpread(values, np.full_like(values, NOT_LISTED), min(wanted[0], values.shape[1]))


def auto_values(mode: EvFormatMode, ports: int, per_port: int, seeds: ArrayLike, paths: int | None = None) -> Numbers:
    """Return the AUTO values of many queue pairs, [queue pair, port, EV]; each depends on its seed only."""
    keys = _keys(seeds)
    if mode == EvFormatMode.SRV6:
        return _table_indices(ports, per_port, keys, per_port if paths is None else paths)
    first, choices = (0, STEV_CHOICES) if mode == EvFormatMode.STEV else (FIRST_PORT, PORT_CHOICES)
    if ports * per_port > choices:
        raise TooBigError(f"{ports * per_port} EVs a queue pair; {mode.name} has {choices} different ones", choices)
    numbers = np.arange(ports * per_port, dtype=np.int64).reshape(1, ports, per_port)
    return first + _permuted(numbers, keys[:, None, None], choices)


def _table_indices(ports: int, per_port: int, keys: Numbers, paths: int) -> Numbers:
    """Return indices into a table with path p of port q at index p * ports + q."""
    if paths < 1 or paths * ports > TABLE_SIZE:
        raise TooBigError(f"paths: {paths} on each of {ports} planes; an EV index numbers 1..{TABLE_SIZE} in all")
    port = np.arange(ports, dtype=np.int64)
    numbers = np.arange(min(per_port, paths), dtype=np.int64).reshape(1, 1, -1)
    chosen = _permuted(numbers, _stirred(keys[:, None, None] + port[None, :, None] + 1), paths)
    return chosen * ports + port[None, :, None]


def _from_profile(profile: EvProfile, ports: int, active: int, backup: int, seed: int) -> EvSpread:
    mode = _auto_mode(profile)
    shuffled = [_shuffled(listed, seed, port) for port, listed in enumerate(_listed(profile, mode, ports))]
    chosen = _distinct(shuffled, active + backup)
    each = min(len(row) for row in chosen)
    if each == 0:
        port = 1 + min(range(ports), key=lambda index: len(chosen[index]))
        raise InvalidArgumentError(f"EV profile: no usable EV on port {port}; every one of {ports} ports needs some")
    rows = np.array([row[:each] for row in chosen], dtype=np.int64)
    return EvSpread(rows[:, :, 0].copy(), rows[:, :, 1].copy(), min(active, each))


def _listed(profile: EvProfile, mode: EvFormatMode, ports: int) -> list[list[tuple[int, int]]]:
    """Return (value, position) of the EVs that are not denied, by port."""
    by_port: list[list[tuple[int, int]]] = [[] for _ in range(ports)]
    usable = EvEntryState.GOOD | EvEntryState.ASSUMED_BAD
    for position, ((ev, state), wire) in enumerate(zip(profile.array.entries(), profile.expanded(), strict=True)):
        if state & usable and ev.port <= ports:
            by_port[ev.port - 1].append((carried(mode, wire, position), position))
    return by_port


def carried(mode: EvFormatMode, expanded: bytes, position: int) -> int:
    """Return the value of an expanded EV at `position` of its profile: its first bytes, or its index."""
    if mode == EvFormatMode.SRV6:
        if position >= TABLE_SIZE:
            raise TooBigError(f"EV {position}: an SRV6 index numbers {TABLE_SIZE} EVs", TABLE_SIZE)
        return position
    return int.from_bytes(expanded[: 4 if mode == EvFormatMode.STEV else 2], "big")


def _shuffled(listed: list[tuple[int, int]], seed: int, port: int) -> Iterator[tuple[int, int]]:
    if listed:
        key = _stirred(_keys([seed]) + port + 1)
        yield from (listed[index] for index in _permuted(np.arange(len(listed), dtype=np.int64), key, len(listed)))


def _distinct(shuffled: list[Iterator[tuple[int, int]]], wanted: int) -> list[list[tuple[int, int]]]:
    """Assign each port up to `wanted` EVs, in turn, so that shared values do not all go to the first port."""
    dealt: list[list[tuple[int, int]]] = [[] for _ in shuffled]
    taken: set[int] = set()
    for _ in range(wanted):
        for row, rest in zip(dealt, shuffled, strict=True):
            entry = next((entry for entry in rest if entry[0] not in taken), None)
            if entry is not None:
                row.append(entry)
                taken.add(entry[0])
    return dealt


def _per_port(ports: int, active: int, backup: int) -> tuple[int, int]:
    if ports < 1 or active < 1 or backup < 0:
        raise InvalidArgumentError(f"{ports} ports, {active} active, {backup} backup; at least 1, 1 and 0")
    return max(1, active // ports), backup // ports


def _auto_mode(profile: EvProfile) -> EvFormatMode:
    form = profile.configuration.format
    return EvFormatMode.UDP if form is None or form.mode is None else form.mode


def _keys(seeds: ArrayLike) -> Numbers:
    """Return a 32-bit key for each seed; consecutive seeds give unrelated keys."""
    seed = np.asarray(seeds, dtype=np.int64) & _SEED
    return _stirred(_stirred(seed & _WORD) ^ (seed >> 32 & _WORD))


def _stirred(numbers: Numbers) -> Numbers:
    numbers = numbers + 0x9E3779B9 & _WORD
    for multiplier in _MULTIPLIERS:
        numbers = (numbers ^ numbers >> 16) * multiplier & _WORD
    return numbers ^ numbers >> 16


def _permuted(numbers: Numbers, keys: Numbers, limit: int) -> Numbers:
    """Permute the numbers below `limit` by a key.

    Each step is a permutation of the numbers below the next power of two; results beyond the limit are permuted again
    until they are below it (cycle walking; Black and Rogaway, 2002).
    """
    bits = (limit - 1).bit_length()
    numbers, keys = np.broadcast_arrays(numbers, keys)
    result = _scrambled(numbers, keys, bits)
    while (outside := result >= limit).any():
        result[outside] = _scrambled(result[outside], keys[outside], bits)
    return result


def _scrambled(numbers: Numbers, keys: Numbers, bits: int) -> Numbers:
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    for _ in range(_ROUNDS):
        keys = _stirred(keys)
        numbers = (numbers ^ keys & mask) * (keys >> 1 | 1) & mask  # odd, so one-to-one; below 2**31
        numbers = numbers ^ numbers >> half
    return numbers
