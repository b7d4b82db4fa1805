"""Set the clock of tables back: 64 bits of picoseconds last for 53 days, and programs run longer.

Rows say by their types which of their fields are times (`rows.Instant`), so nothing has to be listed here. A field is a
time only if it is above 0 and below NEVER; what lies before the new zero becomes 1 ps, long ago but still a time.
"""

from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from openmrc.core.rows import INSTANT
from openmrc.units import NEVER

_ROWS = 1 << 16  # in one step: a table of a gigabyte takes no second one


def instants_of(row: type) -> list[str]:
    """Return the names of the fields of a row type that are times."""
    hints = get_type_hints(row, include_extras=True)
    return [name for name, hint in hints.items() if INSTANT in get_args(hint)]


def set_back(tables: NamedTuple, by: int) -> None:
    """Take `by` ps from every time in the tables; those who read the clock do the same."""
    for name, hint in get_type_hints(type(tables), include_extras=True).items():
        kinds = [kind for kind in get_args(hint) if isinstance(kind, type)]
        for field in instants_of(kinds[0]) if kinds else []:
            _set_back(np.asarray(getattr(tables, name))[field], by)


def _set_back(times: Any, by: int) -> None:
    for begin in range(0, len(times), _ROWS):
        part = times[begin : begin + _ROWS]
        is_time = (part > 0) & (part < NEVER)
        if is_time.any():  # pages that were never written take no memory
            part[is_time] = np.maximum(part[is_time] - by, 1)
