"""Build a lab, and remove it completely."""

import fcntl
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.base.shipped import find
from openmrc.core import host_memory
from openmrc.errors import ConfigError, MrcError
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.export.view import Views
from openmrc.fabric.model.build import build, load_placed
from openmrc.fabric.model.shape import PlaneShape
from openmrc.lab import commands, kernel_maps, namespaces, record, run
from openmrc.lab.layout import EXPORT, MANAGEMENT, CableEnd, Lab, plan_lab
from openmrc.lab.namespaces import batch, namespace
from openmrc.lab.port import OBJECT, QUEUE_MAP, SETTINGS_MAP, packed

_NODE_KB, _CABLE_KB, _PATH_KB = 100, 150, 2
_MOST_NAMESPACES = Path("/proc/sys/user/max_net_namespaces")


def check_room(lab: Lab) -> None:
    """Refuse a lab that needs more memory or namespaces than available."""
    nodes, free = lab.topology.nodes + 1, int(_MOST_NAMESPACES.read_text("ascii")) - namespaces.count()
    if nodes > free:
        raise ConfigError(
            f"{lab.name}: {nodes} namespaces needed, {free} left of user.max_net_namespaces; "
            "`sysctl -w user.max_net_namespaces=N` raises it"
        )
    need, available = needed_kb(lab), host_memory.available_bytes() // 1024
    if need > available:
        fits = int(lab.topology.nics * math.sqrt(available / need))
        raise ConfigError(
            f"{lab.name}: about {need / 1e6:.1f} GB are needed for {tunnel_paths(lab):,} paths between "
            f"{lab.topology.nics} NICs, {available / 1e6:.1f} GB are available; about {fits} NICs would fit"
        )


def needed_kb(lab: Lab) -> int:
    """Estimate the kernel memory of a lab."""
    return _NODE_KB * lab.topology.nodes + _CABLE_KB * len(lab.cables) + _PATH_KB * tunnel_paths(lab)


def tunnel_paths(lab: Lab) -> int:
    """Count the next hops of all NICs' routes to each other's plain addresses."""
    return sum(_paths_of(shape) for shape in lab.topology.planes)


def _paths_of(shape: PlaneShape) -> int:
    under = np.bincount(shape.t0_of(np.arange(shape.nics, dtype=np.int64)))
    near = int((under * (under - 1)).sum())  # ordered pairs under one T0 have one path
    return near + (shape.nics * (shape.nics - 1) - near) * shape.paths


_AT_ONCE = 4  # namespaces configured in parallel: kernel locks prevent a gain from more

_BPF_FILES = Path("/sys/fs/bpf")

Progress = Callable[[int, int], None]


def up(
    fabric: Path, name: str | None = None, trimming: bool = True, progress: Progress = lambda done, total: None
) -> record.Record:
    """Build a lab from a fabric file; after a failure, remove everything.

    `fabric` is a file, or the name of a shipped one. `progress` is called with the number of finished namespaces and
    the total.
    """
    namespaces.require_root()
    began = time.perf_counter()
    fabric = find(fabric)
    described, where = load_placed(fabric)
    name = namespaces.check_lab_name(name or described.name)
    lab = plan_lab(name, usid_plan(build(described), where))
    check_room(lab)
    if not OBJECT.exists():
        raise MrcError(f"{OBJECT} is missing; `make bpf` compiles it")
    with _lock():
        if namespaces.of_lab(name) or name in record.recorded():
            raise MrcError(f"lab {name!r} already exists, complete or incomplete; `mrc lab down {name}` removes it")
        try:
            written = record.begin(name, fabric, trimming)
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


def up_now() -> list[dict[str, Any]]:
    """Return the labs: up, incomplete, or gone, of which only the record is left."""
    found = []
    for name in sorted({*record.recorded(), *namespaces.labs()}):
        count = len(namespaces.of_lab(name))
        try:
            state, took = "up", record.read(name).build_s
        except MrcError:
            state, took = "incomplete" if count else "gone", 0.0
        found.append({"name": name, "state": state, "namespaces": count, "build_s": took})
    return found


def _remove(name: str) -> dict[str, Any]:
    names = namespaces.of_lab(name)
    ended = namespaces.remove(names)
    pinned_path(name).unlink(missing_ok=True)  # of an `up` that was killed
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
    with _program(lab) as (program, written.maps):
        for port in lab.ports():
            kernel_maps.write(written.maps.settings, packed(commands.settings(port, written.trimming)), port.link)
        count, furnish = lab.topology.nodes, partial(_furnish, lab, Views(lab.plan, EXPORT), ports, program)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done, _ in enumerate(pool.map(furnish, range(count)), start=1):
                progress(done, count)
    written.ports = 2 * len(lab.cables)
    _write_hosts(lab)
    for node, own in ports.items():
        namespaces.await_ports(namespace(lab.name, node), [port.interface for port, _ in own])
    run.write_nic_files(lab, written.trimming)


def pinned_path(name: str) -> Path:
    """Return where a lab's program is while its ports are configured."""
    return _BPF_FILES / f"openmrc-{name}"


@contextmanager
def _program(lab: Lab) -> Iterator[tuple[Path, record.PortMaps]]:
    """Load the ports' program once, and yield its path in the BPF file system, which `tc` mounts, and its maps.

    Each port's filter holds a reference to it, so that neither the path nor the first filter is needed afterwards.
    """
    where = namespace(lab.name, MANAGEMENT)
    load = f"filter add dev lo egress bpf direct-action object-file {OBJECT} section tc"
    shown = batch("tc", ["qdisc add dev lo clsact", load, "filter show dev lo egress"], where)
    number = next(int(each["options"]["prog"]["id"]) for each in json.loads(shown) if "prog" in each.get("options", {}))
    maps = kernel_maps.maps_of(number)
    path = pinned_path(lab.name)
    with ExitStack() as held:
        try:
            held.enter_context(kernel_maps.pinned(number, path))
        except OSError as error:
            raise MrcError(f"{path}: {error.strerror}; is a BPF file system mounted on {_BPF_FILES}?") from error
        yield path, record.PortMaps(maps[SETTINGS_MAP], maps[QUEUE_MAP])
    batch("tc", ["qdisc delete dev lo clsact"], where)


def _furnish(lab: Lab, switches: Views, ports: dict[str, list[tuple[CableEnd, str]]], program: Path, node: int) -> None:
    """Configure addresses, routes, rates and the program of one namespace's ports."""
    name = lab.topology.name(node)
    where = namespace(lab.name, name)
    own = ports[name]
    peers = {port.interface: mac for port, mac in own}
    batch("tc", commands.of_qdiscs((port for port, _ in own), program), where)  # first, so that it counts every packet
    if node < lab.topology.nics:
        batch("ip", commands.of_nic(lab, node, peers), where)
    else:
        switch = switches.of(node)
        batch("ip", commands.of_switch(switch), where)
        _set_sysctls(where, commands.sysctls_of(switch))


def _set_sysctls(name: str, settings: Mapping[str, str]) -> None:
    with namespaces.inside(name):
        for key, value in settings.items():
            Path("/proc/sys", key).write_text(value, encoding="ascii")


def _write_hosts(lab: Lab) -> None:
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{lab.management(nic)} {name}" for nic, name in enumerate(lab.nics())]
    for name in lab.nics():
        here = namespaces.FILES / namespace(lab.name, name)
        here.mkdir(parents=True, exist_ok=True)
        (here / "hosts").write_text("\n".join(lines) + "\n", encoding="ascii")
