"""The operations of the controller socket: name -> the function that serves it.

To add an operation, write in one module

    class Heat(msgspec.Struct, kw_only=True):          # what a caller sends; every field with a default
        port: int = 0

    class HeatReply(msgspec.Struct, kw_only=True):     # what it gets
        degrees: float

    def heat(device: CtlDevice, request: Heat) -> HeatReply:
        ...

and add one line to `OPERATIONS`: `"heat": "openmrc.telemetry.heat:heat"`. The module may lie in any layer: it is
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

OPERATIONS: dict[str, str] = {
    "device": "openmrc.ctl.endpoint_ops:device",
    "ports": "openmrc.ctl.endpoint_ops:ports",
    "set_port": "openmrc.ctl.endpoint_ops:set_port",
    "paths": "openmrc.ctl.endpoint_ops:paths",
    "votes": "openmrc.ctl.endpoint_ops:votes",
    "deny": "openmrc.ctl.endpoint_ops:deny",
    "renew": "openmrc.ctl.endpoint_ops:renew",
    "lift": "openmrc.ctl.endpoint_ops:lift",
    "denials": "openmrc.ctl.endpoint_ops:denials",
    "snapshot": "openmrc.telemetry.snapshot_ops:snapshot",
    "events": "openmrc.telemetry.snapshot_ops:events",
    "profiles": "openmrc.ctl.profile_ops:profiles",
    "modify_format": "openmrc.ctl.profile_ops:modify_format",
    "modify_ev_profile": "openmrc.ctl.profile_ops:modify_ev_profile",
    "query_evs": "openmrc.ctl.profile_ops:query_evs",
    "modify_cc": "openmrc.ctl.profile_ops:modify_cc",
    "use_profiles": "openmrc.ctl.profile_ops:use_profiles",
    "create_events": "openmrc.ctl.endpoint_ops:create_events",
    "destroy_events": "openmrc.ctl.endpoint_ops:destroy_events",
    "poll_events": "openmrc.ctl.endpoint_ops:poll_events",
    "ep_batch": "openmrc.ctl.endpoint_ops:ep_batch",
}


class CtlOperation(NamedTuple):
    """An operation with the types of its request and reply."""

    serve: Callable[[Any, Any], Any]
    request: Any
    reply: Any


@functools.cache
def operation(name: str) -> CtlOperation:
    """Return an operation; ENOTSUP if there is none of this name."""
    target = OPERATIONS.get(name)
    if target is None:
        raise NotSupportedError(f"operation: {name!r}; there are {', '.join(OPERATIONS)}")
    module, _, function = target.partition(":")
    serve = getattr(importlib.import_module(module), function)
    types = list(get_type_hints(serve).values())  # of the device, the request, the reply
    return CtlOperation(serve, types[1], types[2])
