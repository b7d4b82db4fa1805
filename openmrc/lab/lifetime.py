"""Build a lab, and remove it completely."""

from __future__ import annotations

import fcntl
import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from openmrc.errors import MrcError
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.export.view import Views
from openmrc.fabric.model.build import build
from openmrc.fabric.model.fabric_file import load_placed
from openmrc.lab import commands, kernel_maps, namespaces, nics, record
from openmrc.lab.layout import EXPORT, MANAGEMENT, CableEnd, Lab, plan_lab
from openmrc.lab.namespaces import batch, namespace
from openmrc.lab.port import OBJECT, QUEUE_MAP, SETTINGS_MAP, packed
from openmrc.lab.room import check_room

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_SIGNALLED = 128  # exit codes as in shells
_AT_ONCE = 4  # namespaces configured in parallel: kernel locks prevent a gain from more

Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    """Report nothing."""


def up(fabric: Path, name: str | None = None, trimming: bool = True, progress: Progress = _silent) -> record.Record:
    """Build a lab from a fabric file; after a failure, remove everything.

    `progress` is called with the number of finished namespaces and the total.
    """
    namespaces.require_root()
    began = time.perf_counter()
    described, where = load_placed(fabric)
    name = namespaces.check_lab_name(name or described.name)
    lab = plan_lab(name, usid_plan(build(described), where))
    check_room(lab)
    if not OBJECT.exists():
        raise MrcError(f"{OBJECT} is missing; `make bpf` compiles it")
    with _lock():
        if namespaces.of_lab(name) or name in record.recorded():
            raise MrcError(f"lab {name!r} already exists, complete or incomplete; `mrc lab down {name}` removes it")
        written = record.begin(name, fabric, trimming)
        try:
            _build(lab, written, progress)
        except BaseException:
            _remove(name)
            raise
        written.complete, written.build_s = True, round(time.perf_counter() - began, 3)
        record.write(name, written)
    return written


def down(name: str) -> dict[str, Any]:
    """Remove a lab, complete or not; return what was removed."""
    namespaces.require_root()
    with _lock():
        if not namespaces.of_lab(name) and name not in record.recorded():
            raise MrcError(f"no lab called {name!r} is up; `mrc lab list` shows all labs")
        return _remove(name)


@contextmanager
def held(fabric: Path, name: str, trimming: bool = True) -> Iterator[record.Record]:
    """Keep a lab up for a block and remove it however the block ends, SIGTERM and SIGHUP included.

    Remnants of an earlier lab of this name are removed first. For programs that own the name.
    """
    namespaces.require_root()
    with _answering(_ENDING, _end):
        if namespaces.of_lab(name) or name in record.recorded():
            down(name)
        written = up(fabric, name, trimming)
        try:
            yield written
        finally:
            with _answering(
                (*_ENDING, signal.SIGINT), signal.SIG_IGN
            ):  # a second signal does not interrupt the cleanup
                down(name)


def _end(number: int, _: object) -> NoReturn:
    """End the block by an exception when a signal arrives."""
    raise SystemExit(_SIGNALLED + number)


@contextmanager
def _answering(numbers: Iterable[signal.Signals], handler: Any) -> Iterator[None]:
    """Handle these signals so during a block; in the main thread only, others get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def up_now() -> list[dict[str, Any]]:
    """Return the labs, complete or not."""
    found = []
    for name in sorted({*record.recorded(), *namespaces.labs()}):
        try:
            written = record.read(name)
            state, took = "up", written.build_s
        except MrcError:
            state, took = "incomplete", 0.0
        found.append({"name": name, "state": state, "namespaces": len(namespaces.of_lab(name)), "build_s": took})
    return found


def _remove(name: str) -> dict[str, Any]:
    names = namespaces.of_lab(name)
    ended = namespaces.end_processes(names)
    namespaces.remove(names)
    record.remove(name)
    return {"name": name, "namespaces": len(names), "processes_ended": ended}


@contextmanager
def _lock() -> Iterator[None]:
    """Allow one process at a time to create or remove labs."""
    record.FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with (record.FOLDER.parent / "lab.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(lab: Lab, written: record.Record, progress: Progress) -> None:
    nodes = [*lab.nics(), *lab.switches(), MANAGEMENT]
    batch("ip", [f"netns add {namespace(lab.name, node)}" for node in nodes])
    for node in nodes:
        _set_sysctls(namespace(lab.name, node), commands.SYSCTLS)
    namespaces.link_batch([*commands.cables(lab), *commands.management(lab)])
    batch("ip", commands.of_management(lab), namespace(lab.name, MANAGEMENT))
    ports = commands.ports_by_node(lab)
    total = lab.topology.nodes
    for done, maps in enumerate(_furnished(lab, ports), start=1):
        written.maps.update(maps)
        progress(done, total)
    _tell_ports(lab, written)
    _write_hosts(lab)
    for node, own in ports.items():
        namespaces.await_ports(namespace(lab.name, node), [port.interface for port, _ in own])
    nics.write_all(lab, written.trimming)


def _furnished(lab: Lab, ports: dict[str, list[tuple[CableEnd, str]]]) -> Iterator[dict[str, record.PortMaps]]:
    """Configure every namespace; yield the maps of each.

    The first goes alone: on a machine where nothing has loaded a BPF program yet, tc mounts the BPF file system and
    makes its folders there, and of several that do so at once some fail.
    """
    switches = Views(lab.plan, EXPORT)
    yield _furnish(lab, switches, 0, ports)
    yield from _side_by_side(lambda node: _furnish(lab, switches, node, ports), range(1, lab.topology.nodes))


def _furnish(
    lab: Lab, switches: Views, node: int, ports: dict[str, list[tuple[CableEnd, str]]]
) -> dict[str, record.PortMaps]:
    """Configure addresses, routes, rates and programs of one namespace; return the programs' maps."""
    name = lab.topology.name(node)
    where = namespace(lab.name, name)
    own = ports[name]
    peers = {port.interface: mac for port, mac in own}
    batch("tc", commands.of_qdiscs(port for port, _ in own), where)  # first, so that it counts every packet
    if node < lab.topology.nics:
        batch("ip", commands.of_nic(lab, node, peers), where)
    else:
        switch = switches.of(node)
        batch("ip", commands.of_switch(switch), where)
        _set_sysctls(where, commands.sysctls_of(switch))
    shown = batch("tc", [f"filter show dev {port.interface} egress" for port, _ in own], where)
    programs = [_program(filters) for filters in _documents(shown)]
    return {f"{name}/{port.interface}": _maps(program) for (port, _), program in zip(own, programs, strict=True)}


def _maps(program: int) -> record.PortMaps:
    maps = kernel_maps.maps_of(program)
    return record.PortMaps(maps[SETTINGS_MAP], maps[QUEUE_MAP])


def _program(filters: list[dict[str, Any]]) -> int:
    return next(int(each["options"]["prog"]["id"]) for each in filters if "prog" in each.get("options", {}))


def _documents(text: str) -> list[Any]:
    """Return the consecutive JSON documents in the output of a batch."""
    decoder, at, found = json.JSONDecoder(), 0, []
    text = text.strip()
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        found.append(document)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def _tell_ports(lab: Lab, written: record.Record) -> None:
    for port in lab.ports():
        maps = written.maps[f"{port.node}/{port.interface}"]
        kernel_maps.write(maps.settings, packed(commands.settings(port, written.trimming)))


def _set_sysctls(name: str, settings: Mapping[str, str]) -> None:
    with namespaces.inside(name):
        for key, value in settings.items():
            Path("/proc/sys", key).write_text(value, encoding="ascii")


def _write_hosts(lab: Lab) -> None:
    """Write the hosts file of every NIC."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{lab.management(nic)} {name}" for nic, name in enumerate(lab.nics())]
    for name in lab.nics():
        here = namespaces.FILES / namespace(lab.name, name)
        here.mkdir(parents=True, exist_ok=True)
        (here / "hosts").write_text("\n".join(lines) + "\n", encoding="ascii")


def _side_by_side(work: Callable[[int], Any], items: Iterable[int]) -> Iterator[Any]:
    """Yield the results in order, as they become available."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(work, items)
