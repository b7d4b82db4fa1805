"""openmrc: Multipath Reliable Connection (OCP MRC 1.0) in software.

`openmrc.simulate`, `openmrc.sweep` and `openmrc.plan` are those of `openmrc.api`, imported when they are first used;
`openmrc.verbs` is the live endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openmrc.api import plan, simulate, sweep

__version__ = "0.1.0"
__all__ = ["plan", "simulate", "sweep"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from openmrc import api

        return getattr(api, name)
    raise AttributeError(f"module 'openmrc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
