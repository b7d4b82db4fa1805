"""The operations of the controller socket: name -> the function that serves it.

To add an operation, write in one module

    class Heat(msgspec.Struct, kw_only=True):          # what a caller sends; every field with a default
        port: int = 0

    class HeatReply(msgspec.Struct, kw_only=True):     # what it gets
        degrees: float

    def heat(device: CtlDevice, request: Heat) -> HeatReply:
        ...

and add one line to `_SERVED`: `"openmrc.telemetry.heat:heat"`. The module may lie in any layer: it is
imported when the operation is first called. The types of request and reply are read from the function's annotations.
Callers write `client.call("heat", Heat(port=1), HeatReply)`.

`device` is the endpoint. What it must do is declared in `openmrc.ctl.device.CtlDevice` and done by
`openmrc.live.ctl.controlled.NicControl`: methods that other threads may call at any time, and that return soon.
The function may raise any `CallError`: the caller gets it with its `errno`, `needed` and `done`. Any other exception is
a defect: the caller gets EIO, the endpoint goes on. A field may be added to a request or reply if it has a default;
anything else takes a new name, or a new version in `messages`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from openmrc.ctl.errors import NotSupportedError

_SERVED = (  # modules, with the functions in them: in one string, by which spec.reachability finds what is called late
    "openmrc.ctl.endpoint_ops:device ports set_port paths votes deny renew lift denials "
    "create_events destroy_events poll_events ep_batch",
    "openmrc.ctl.profile_ops:profiles modify_format modify_ev_profile query_evs modify_cc use_profiles",
    "openmrc.telemetry.snapshot_ops:snapshot events",
)
OPERATIONS = {name: module for module, _, names in (each.partition(":") for each in _SERVED) for name in names.split()}


class CtlOperation(NamedTuple):
    """An operation with the types of its request and reply."""

    serve: Callable[[Any, Any], Any]
    request: Any
    reply: Any


@functools.cache
def operation(name: str) -> CtlOperation:
    """Return an operation; ENOTSUP if there is none of this name."""
    module = OPERATIONS.get(name)
    if module is None:
        raise NotSupportedError(f"operation: {name!r}; there are {', '.join(OPERATIONS)}")
    serve = getattr(importlib.import_module(module), name)
    types = list(get_type_hints(serve).values())  # of the device, the request, the reply
    return CtlOperation(serve, types[1], types[2])
