"""The options of `mrc fabric export`, which `diff` and `verify --from` must be given again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

_PANEL = "What the switches and hosts are"


def _option(kind: Any, help_text: str, **limits: Any) -> Any:
    return Annotated[kind, typer.Option(help=help_text, rich_help_panel=_PANEL, **limits)]


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "cages": (_option(int | None, "Cages of a switch; unless given, as `plant` of the fabric says.", min=1), None),
    "lanes": (_option(int | None, "Lanes of a cage: 1, 2, 4 or 8; unless given, as `plant` says."), None),
    "lane_gbps": (_option(float | None, "Speed of a lane, Gb/s; unless given, as `plant` says."), None),
    "breakout": (_option(int, "Ports of every cage; 0: what the ports' speeds leave room for.", min=0), 0),
    "image": (_option(str, "SONiC: current, or old, which knows no uA."), "current"),
    "frr": (_option(str, "FRR: 8.4, 10.3 or 10.7."), "10.7"),
    "mtu": (_option(int, "Bytes of an IP packet, 4242 to 9216."), 9000),
    "trimming": (_option(bool, "Let full buffers trim."), True),
    "ntp": (_option(list[str], "Time server; may be repeated."), []),
    "management": (_option(str, "Prefix of the management network, such as 10.91.0.0/16; none: DHCP."), ""),
    "hwsku": (_option(str, "SONiC's HwSKU."), ""),
    "platform": (_option(str, "SONiC's platform."), ""),
    "interface": (_option(str, "Name of a host's port, with {nic}, {plane} and {host}."), "mrc{nic}p{plane}"),
    "host_format": (_option(str, "Hosts: netplan or networkd."), "netplan"),
}


def with_export_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options above, and hand them to it as `options`."""
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
    from openmrc.fabric.export.cages import Cages
    from openmrc.fabric.export.options import Options
    from openmrc.fabric.fabric_file import load

    names = ("image", "frr", "mtu", "trimming", "management", "hwsku", "platform", "interface", "host_format")
    plant = load(given["file"]).plant
    count, lanes, speed = (
        getattr(plant, name) if given[name] is None else given[name] for name in ("cages", "lanes", "lane_gbps")
    )
    cages = Cages(count, lanes, speed, given["breakout"])
    return Options(cages=cages, ntp=tuple(given["ntp"]), **{name: given[name] for name in names})
