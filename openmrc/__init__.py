"""openmrc: Multipath Reliable Connection (OCP MRC 1.0) in software.

`openmrc.simulate`, `openmrc.sweep`, `openmrc.plan` and `openmrc.job` are those of `openmrc.api`, imported when they are
first used; `openmrc.verbs` is the live endpoint.
"""

import sys
from typing import TYPE_CHECKING, Any

from openmrc.version import __version__

if TYPE_CHECKING:
    from openmrc.api import job, plan, simulate, sweep

__all__ = ["__version__", "get_include", "get_library", "job", "plan", "simulate", "sweep"]
_OF_API = frozenset({"job", "plan", "simulate", "sweep"})


def get_include() -> str:
    """Return the folder of `mrc.h`; MrcError if this installation has none."""
    from openmrc.native.library import include_folder

    return str(include_folder())


def get_library() -> str:
    """Return the path of `libmrc.so.1`, built first in a checkout; MrcError if this machine cannot build it."""
    from openmrc.native.library import library

    return str(library(_say))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def __getattr__(name: str) -> Any:
    if name in _OF_API:
        from openmrc import api

        return getattr(api, name)
    raise AttributeError(f"module 'openmrc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
