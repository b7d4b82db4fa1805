"""One property of every link under overlapping faults.

A fault without an end sets the base value. A spell, a fault with a duration, overrides it until it ends; of several
spells the last one to begin applies. Setting the base ends all spells at those links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints


@dataclass(frozen=True)
class _Spell:
    began: int  # in order of all changes
    links: Ints
    value: float


class LinkLayers:
    """The value of one property at every link; initially 0."""

    def __init__(self, links: int) -> None:
        self.value = np.zeros(links)  # current value
        self._base = np.zeros(links)
        self._spells_here = np.zeros(links, np.int64)
        self._set_at = np.zeros(links, np.int64)  # when the base was set last, in order of all changes
        self._spells: dict[int, _Spell] = {}  # by number, in order of their beginnings
        self._changes = 0

    def after(self, links: Ints, value: float, spell: int = 0, ends: bool = False) -> Ints:
        """Set a value, begin a spell (its number above 0) or end one; return the links whose value changed."""
        self._changes += 1
        before = self.value[links]
        if ends:
            self._end(spell)
        elif spell:
            self._spells[spell] = _Spell(self._changes, links, value)
            self._spells_here[links] += 1
            self.value[links] = value
        else:
            self._base[links] = self.value[links] = value
            self._spells_here[links] = 0
            self._set_at[links] = self._changes
        changed: Ints = links[self.value[links] != before]
        return changed

    def _end(self, number: int) -> None:
        """End a spell where it still applies; restore the latest of the others, or the base."""
        gone = self._spells.pop(number)
        links = gone.links[self._set_at[gone.links] < gone.began]
        self._spells_here[links] -= 1
        self.value[links] = self._base[links]
        covered = links[self._spells_here[links] > 0]
        for spell in self._spells.values() if len(covered) else ():
            under = covered[np.isin(covered, spell.links) & (self._set_at[covered] < spell.began)]
            self.value[under] = spell.value
