"""A figure of a run whose flows did not all finish is no figure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from openmrc.units import NEVER


def all_finished(what: str, finished: NDArray[np.int64]) -> None:
    """Exit with an error if any of these completion times (ps) is NEVER."""
    left = int((finished >= NEVER).sum())
    if left:
        raise SystemExit(f"{what}: {left} of {len(finished)} flows did not finish")
