"""Options for `init_process_group("mrc", pg_options=...)` and `new_group`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Network options of a process group."""

    planes: Sequence[str] | str | None = None  # as of `Group`
    faults: str | None = None  # schedule of impairments of arriving packets, timed from the opening of the endpoint
    shared_memory: bool = True  # between ranks of one host, unless `faults` are given or MRC_SHARED_MEMORY=0
