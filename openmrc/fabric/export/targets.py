"""The systems a fabric can be exported to."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export import containerlab, cumulus, eos, frr, hosts, linux, sonic
from openmrc.fabric.export.cages import speed_of
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.view import PortName, SwitchView, Views, linux_port, view


@dataclass(frozen=True)
class Target:
    """A target: the functions that write a switch's files."""

    emit: Callable[[SwitchView], dict[str, str]]
    port_name: PortName
    warnings: Callable[[SwitchView], list[str]]
    has_speeds: bool = True  # whether it sets port speeds


TARGETS = {
    "sonic": Target(sonic.emit, sonic.port_name, sonic.warnings),
    "frr": Target(frr.emit, linux_port, frr.warnings, has_speeds=False),
    "cumulus": Target(cumulus.emit, cumulus.port_name, cumulus.warnings),
    "linux": Target(linux.emit, linux_port, linux.warnings, has_speeds=False),
    "eos": Target(eos.emit, eos.port_name, eos.warnings),
}
_FEW = 8  # number of switches for which building tables one by one is faster
WHOLE = ("containerlab", "hosts")  # written for the whole fabric, not per switch


def export(
    plan: UsidPlan, target: str, options: ExportOptions, nodes: Sequence[int] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of all switches or hosts, or of some (`nodes`: switches; hosts by their number)."""
    check(target, options)
    if target == "containerlab":
        yield from containerlab.emit_all(plan, options).items()
    else:
        files = _exporter(plan, target, options, nodes)
        for node in every_node(plan, target) if nodes is None else nodes:
            yield from files(node)


def _exporter(
    plan: UsidPlan, target: str, options: ExportOptions, nodes: Sequence[int] | None = None
) -> Callable[[int], Iterator[tuple[str, str]]]:
    """Return the function that yields (file name, text) of one of these switches or hosts, or of any."""
    if target == "hosts":
        return hosts.ExportedHosts(plan, options).files_of
    few = nodes is not None and len(nodes) < _FEW
    see = partial(view, plan, options=options) if few else Views(plan, options).of

    def files(node: int) -> Iterator[tuple[str, str]]:
        switch = see(node)
        for ending, text in TARGETS[target].emit(switch).items():
            yield f"{switch.name}.{ending}", text

    return files


Each = Callable[[Callable[[int], Any], Sequence[int]], Iterator[Any]]  # applies work to every item, as `map` does


def write_all(
    plan: UsidPlan, target: str, options: ExportOptions, out: Path, nodes: Sequence[int] | None = None, each: Each = map
) -> Iterator[list[int]]:
    """Write a target's files to the folder `out`; yield the bytes of each file, some switches at a time."""
    check(target, options)
    if target == "containerlab":
        yield _write(export(plan, target, options), out)
        return
    files = _exporter(plan, target, options, nodes)
    every = nodes if nodes is not None else every_node(plan, target)
    yield from each(lambda node: _write(files(node), out), every)


def _write(files: Iterable[tuple[str, str]], out: Path) -> list[int]:
    """Write (name, text) to the folder `out`; return the bytes of each file."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return [_write_file(f"{out}/{name}", text.encode()) for name, text in files]
    except OSError as error:
        raise ConfigError(f"{error.filename or out}: cannot be written: {error.strerror}") from None


def _write_file(path: str, content: bytes) -> int:
    """Write a file without a buffer, which takes longer to make than a small file to write."""
    left = memoryview(content)
    with io.FileIO(path, "w") as file:
        while left:
            left = left[file.write(left) :]
    return len(content)


def every_node(plan: UsidPlan, target: str) -> range:
    """Return the switches of a fabric, or the numbers of its hosts."""
    topology = plan.topology
    return range(topology.nics // topology.nics_per_host) if target == "hosts" else range(topology.nics, topology.nodes)


def check(target: str, options: ExportOptions) -> None:
    """Refuse an unknown target, and options that no target accepts."""
    if target not in TARGETS and target not in WHOLE:
        raise ConfigError(f"cannot export to {target!r}; {', '.join([*TARGETS, *WHOLE])} are known")
    options.check()


def warnings(plan: UsidPlan, target: str, options: ExportOptions) -> list[str]:
    """Return requirements of the files, settings that a platform may silently ignore, and omissions."""
    check(target, options)
    if target == "hosts":
        return hosts.warnings(plan, options)
    if target == "containerlab":
        return ["containers use the host's kernel: 6.1 or newer, with seg6local, htb and red"]
    notes: list[str] = []
    firsts = [first for shape in plan.topology.planes for first in shape.firsts[: shape.tiers]]
    for switch in (view(plan, first, options) for first in firsts):
        notes += TARGETS[target].warnings(switch)
        if TARGETS[target].has_speeds:
            notes += _odd_speeds(switch)
    return list(dict.fromkeys(notes))


def _odd_speeds(switch: SwitchView) -> list[str]:
    rates = {run.rate / 1e9 for run in switch.layout.runs}
    return [
        f"ports of {gbps:g}G are set to {speed_of(gbps)}G, which Ethernet has"
        for gbps in rates
        if speed_of(gbps) != gbps
    ]
