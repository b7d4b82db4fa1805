"""Shared parts of the `mrc fabric` commands: arguments, reading a fabric, printing a result."""

from __future__ import annotations

import functools
import gc
import inspect
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import yaml

from openmrc.base.terminal import facts_text
from openmrc.fabric.addressing import table_files
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.export.cages import Cages
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.model.build import build
from openmrc.fabric.model.fabric_file import load, load_placed
from openmrc.programs.outcome import give, print_json

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


_CHUNK = 32  # items per process and turn
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_shared: list[Callable[[Any], Any]] = []  # the work of the current call, inherited by the forked workers


def fork_each(work: Callable[[_Item], _Found], items: Sequence[_Item]) -> Iterator[_Found]:
    """Apply work to every item and yield the results in order; few items are processed in this process."""
    workers = min(multiprocessing.cpu_count(), len(items) // (2 * _CHUNK))
    if workers < 2 or _shared:
        yield from map(work, items)
        return
    _shared.append(work)
    gc.freeze()  # garbage collection in the workers would copy the shared pages
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), gc.disable)
    try:
        yield from pool.map(_do, items, chunksize=_CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)
        _shared.clear()
        gc.unfreeze()


def _do(item: Any) -> Any:
    (work,) = _shared
    return work(item)


FabricFile = Annotated[Path, typer.Argument(metavar="FABRIC", help="fabric.yaml, or an htsim .topo file.")]
TableFile = Annotated[
    Path | None,
    typer.Option("--tables", help="Tables to use instead of the planned ones: .npz, SWITCH.txt or a folder."),
]


def load_topology(file: Path) -> Any:
    """Read a fabric as arrays."""
    return build(load(file))


def load_plan(file: Path) -> UsidPlan:
    """Read a fabric and number its uSIDs."""
    fabric, where = load_placed(file)
    return usid_plan(build(fabric), where)


def load_tables(plan: UsidPlan, path: Path | None) -> Any:
    """Read tables from disk; return None if none are given."""
    return table_files.load_tables(plan.topology, path) if path else None


def answer(what: dict[str, Any], as_json: bool) -> None:
    """Print as one JSON object, or as YAML for people: numbers as keys without quotes, the time taken with its unit."""
    if as_json:
        print_json(what)
        return

    said = {
        ("took" if key == "wall_s" else key): f"{value:.2f} s" if key == "wall_s" else _with_numbers(value)
        for key, value in what.items()
    }
    typer.echo(yaml.safe_dump(said, sort_keys=False, width=120).rstrip())


def _with_numbers(value: Any) -> Any:
    """Return a mapping with numbers where JSON needs text as its keys."""
    if not isinstance(value, dict) or not all(str(key).isdecimal() for key in value):
        return value
    return {int(key): each for key, each in value.items()}


def tell(what: dict[str, Any], as_json: bool) -> None:
    """Print as one JSON object, or as text with a table for each list of objects."""
    give(what, as_json, facts_text(what))


def seconds_since(start: float) -> float:
    """Return the seconds since a reading of `time.perf_counter`, in milliseconds' precision, as results show them."""
    return round(time.perf_counter() - start, 3)
