"""Name and options for `init_process_group("mrc", pg_options=...)` and `new_group`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmrc.train.links.mesh import Timers  # loads the transport


NAME = "mrc"  # of the backend


@dataclass(frozen=True)
class Options:
    """Network options of a process group."""

    planes: Sequence[str] | str | None = None  # as of `Group`
    faults: str | None = None  # schedule of impairments of arriving packets, timed from the opening of the endpoint
    timers: Timers | None = None  # how long a rank may be silent before it is lost; None: as of `Group`
    shared_memory: bool = True  # between ranks of one host, unless `faults` are given or MRC_SHARED_MEMORY=0
