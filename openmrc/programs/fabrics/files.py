"""Shared parts of the `mrc fabric` commands: arguments, reading a fabric, printing a result."""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import typer
import yaml

from openmrc.base.terminal import facts_text
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.export.cages import Cages
from openmrc.fabric.export.options import ExportOptions, FrrVersion, HostFormat
from openmrc.fabric.model.build import build, load, load_placed
from openmrc.fabric.model.description import Plant
from openmrc.programs.outcome import give, print_json

_DEFAULT = ExportOptions()


@dataclass(frozen=True)
class SwitchesAndHosts:
    """What an exporter cannot derive from the fabric."""

    panel: ClassVar = "Switches and hosts"
    cages: Annotated[int | None, typer.Option(min=1, help="Cages per switch (default: `plant` of the fabric).")] = None
    lanes: Annotated[int | None, typer.Option(help="Lanes per cage: 1, 2, 4 or 8 (default: `plant`).")] = None
    lane_gbps: Annotated[float | None, typer.Option(help="Gb/s per lane (default: `plant`).")] = None
    breakout: Annotated[int, typer.Option(min=0, help="Ports per cage; 0: as many as the port speed allows.")] = 0
    frr: Annotated[FrrVersion, typer.Option(help="Version of FRR.")] = _DEFAULT.frr
    mtu: Annotated[int, typer.Option(help="Bytes of an IP packet, 4242 to 9216.")] = _DEFAULT.mtu
    trimming: Annotated[bool, typer.Option(help="Trim packets when a buffer is full.")] = _DEFAULT.trimming
    ntp: Annotated[list[str] | None, typer.Option(help="Time server; may be repeated.")] = None
    management: Annotated[
        str, typer.Option(help="Prefix of the management network, such as 10.91.0.0/16; none: DHCP.")
    ] = ""
    hwsku: Annotated[str, typer.Option(help="SONiC's HwSKU.")] = ""
    platform: Annotated[str, typer.Option(help="SONiC's platform.")] = ""
    interface: Annotated[
        str | None,
        typer.Option(help="Interface name of a host port, with {nic}, {plane} and {host} (default: `plant`)."),
    ] = None
    host_format: Annotated[HostFormat, typer.Option(help="Network configuration of hosts.")] = _DEFAULT.host_format

    def of(self, plant: Plant) -> ExportOptions:
        """Return the options for a fabric, whose `plant` says what is not given."""
        given = asdict(self)
        for name in ("cages", "lanes", "lane_gbps", "interface"):
            given[name] = getattr(plant, name) if given[name] is None else given[name]
        cages = Cages(*(given.pop(name) for name in ("cages", "lanes", "lane_gbps", "breakout")))
        return ExportOptions(cages=cages, **given | {"ntp": tuple(self.ntp or ())})


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


FabricFile = Annotated[
    Path, typer.Argument(metavar="FABRIC", help="fabric.yaml, the same in JSON, or an htsim .topo file.")
]


def load_topology(file: Path) -> Any:
    """Read a fabric as arrays."""
    return build(load(file))


def load_plan(file: Path) -> UsidPlan:
    """Read a fabric and number its uSIDs."""
    fabric, where = load_placed(file)
    return usid_plan(build(fabric), where)


def write_blocks(path: Path, blocks: Iterable[str]) -> int:
    """Write blocks of text; return the number of characters."""
    try:
        with path.open("w", encoding="utf-8") as stream:
            return sum(stream.write(block) for block in blocks)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


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
