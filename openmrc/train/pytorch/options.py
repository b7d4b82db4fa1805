"""What `init_process_group("mrc", pg_options=...)` and `new_group` take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How a process group uses the network."""

    planes: Sequence[str] | str | None = None  # as of `Group`; None: MRC_PLANES, else the interfaces
    faults: str | None = None  # a schedule that impairs what arrives; its times count from the begin of the endpoint
