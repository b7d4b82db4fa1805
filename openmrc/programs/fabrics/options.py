"""Options of `mrc fabric export`, shared with `diff` and `verify --from`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from openmrc.fabric.export.cages import Cages
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.model.fabric_file import load

_PANEL = "Switches and hosts"


def _option(kind: Any, help_text: str, **limits: Any) -> Any:
    return Annotated[kind, typer.Option(help=help_text, rich_help_panel=_PANEL, **limits)]


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "cages": (_option(int | None, "Cages per switch (default: `plant` of the fabric).", min=1), None),
    "lanes": (_option(int | None, "Lanes per cage: 1, 2, 4 or 8 (default: `plant`)."), None),
    "lane_gbps": (_option(float | None, "Gb/s per lane (default: `plant`)."), None),
    "breakout": (_option(int, "Ports per cage; 0: as many as the port speed allows.", min=0), 0),
    "image": (_option(str, "SONiC image: current, or old (without uA)."), "current"),
    "frr": (_option(str, "FRR: 8.4, 10.3 or 10.7."), "10.7"),
    "mtu": (_option(int, "Bytes of an IP packet, 4242 to 9216."), 9000),
    "trimming": (_option(bool, "Trim packets when a buffer is full."), True),
    "ntp": (_option(list[str], "Time server; may be repeated."), []),
    "management": (_option(str, "Prefix of the management network, such as 10.91.0.0/16; none: DHCP."), ""),
    "hwsku": (_option(str, "SONiC's HwSKU."), ""),
    "platform": (_option(str, "SONiC's platform."), ""),
    "interface": (
        _option(str | None, "Interface name of a host port, with {nic}, {plane} and {host} (default: `plant`)."),
        None,
    ),
    "host_format": (_option(str, "Network configuration of hosts: netplan or networkd."), "netplan"),
}


def with_export_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options above to a command, and pass them as `options`."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        command(**{name: value for name, value in given.items() if name not in _OPTIONS}, options=_made(given))

    every = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *shared]
    vars(wrapped).update(__signature__=inspect.Signature(every))
    vars(wrapped).pop("__wrapped__")
    wrapped.__annotations__ = {each.name: each.annotation for each in every}
    return wrapped


def _made(given: dict[str, Any]) -> Any:
    names = ("image", "frr", "mtu", "trimming", "management", "hwsku", "platform", "host_format")
    plant = load(given["file"]).plant
    count, lanes, speed = (
        getattr(plant, name) if given[name] is None else given[name] for name in ("cages", "lanes", "lane_gbps")
    )
    cages = Cages(count, lanes, speed, given["breakout"])
    interface = plant.interface if given["interface"] is None else given["interface"]
    return ExportOptions(
        cages=cages, ntp=tuple(given["ntp"]), interface=interface, **{name: given[name] for name in names}
    )
