"""The steps of `mrc demo`: the same outages for TCP over one path, which needs nothing compiled, and for MRC."""

import contextlib
import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from openmrc.base.amounts import gbps, size_bytes
from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo import memory_transfer
from openmrc.programs.demo.memory_transfer import PIECE, TIMEOUT, MemorySender
from openmrc.programs.demo.result import (
    SAMPLE_SECONDS,
    SEED,
    DemoResult,
    Outage,
    SinglePath,
    SinglePathSample,
    outages_of,
    story_faults,
)
from openmrc.programs.demo.view import View
from openmrc.programs.endpoint.opening import EndpointOptions, faults_text, open_endpoint
from openmrc.programs.endpoint.second_process import SecondProcess
from openmrc.programs.warm import Compilation

SO_ATTACH_FILTER = 26  # socket(7); absent from Python's socket module
_NOTHING, _ALL = 0, 0xFFFFFFFF  # bytes of a packet that a filter keeps
_POLL_SECONDS = 0.01  # how late TCP's plane may go down or come up
_END_SECONDS = 5.0


class DeadPlane:
    """Drops all segments that arrive at some sockets, until it is revived."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self.is_down = False

    def set(self, is_down: bool) -> None:
        """Take the plane down, or bring it back."""
        if is_down == self.is_down:
            return
        kept = struct.pack("HBBI", 0x06, 0, 0, _NOTHING if is_down else _ALL)  # classic BPF: BPF_RET | BPF_K
        program = ctypes.create_string_buffer(kept)
        filters = struct.pack("HL", 1, ctypes.addressof(program))  # struct sock_fprog: one instruction
        for each in self._sockets:  # emulations can attach a filter, but not detach it
            each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filters)
        self.is_down = is_down


def can_take_down() -> bool:
    """Return whether this user may attach filters to sockets here: some kernels let only root."""
    with socket.socket() as tried:
        try:
            DeadPlane([tried]).set(True)
        except OSError:  # EPERM, or a sandbox without filters
            return False
    return True


def transfer(
    result: SinglePath,
    addresses: tuple[str, str],
    outages: Sequence[Outage],
    seconds: float,
    on_sample: Callable[[SinglePathSample], None],
) -> None:
    """Send for `seconds` from the first address to the second, with the outages, and fill `result`."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((addresses[1], 0)))
        sender = stack.enter_context(socket.socket())
        sender.bind((addresses[0], 0))
        sender.connect(listener.getsockname())
        sender.settimeout(_POLL_SECONDS)
        receiver = stack.enter_context(listener.accept()[0])
        receiver.settimeout(_POLL_SECONDS)
        is_over = threading.Event()
        thread = threading.Thread(target=_send, args=(sender, is_over), daemon=True)
        thread.start()
        stack.callback(thread.join, _END_SECONDS)
        stack.callback(is_over.set)
        _receive(result, receiver, DeadPlane((sender, receiver)), outages, seconds, on_sample)


def _send(sender: socket.socket, is_over: threading.Event) -> None:
    piece = bytes(PIECE)
    while not is_over.is_set():
        with contextlib.suppress(TimeoutError):
            sender.send(piece)


def _receive(
    result: SinglePath,
    receiver: socket.socket,
    plane: DeadPlane,
    outages: Sequence[Outage],
    seconds: float,
    on_sample: Callable[[SinglePathSample], None],
) -> None:
    """Receive, apply the outages when they begin and end, and sample."""
    memory, began = bytearray(PIECE), time.monotonic()
    heard = last = 0.0  # s since the begin: when something arrived, of the last sample
    before = 0  # bytes at the last sample
    while last < seconds:
        try:
            arrived = receiver.recv_into(memory)
        except TimeoutError:
            arrived = 0
        at = time.monotonic() - began
        result.longest_stall_ms = max(result.longest_stall_ms, round((at - heard) * 1e3, 1))
        if arrived:
            heard = at
            result.bytes += arrived
        plane.set(any(each.covers(at) for each in outages))
        if at - last >= SAMPLE_SECONDS:
            sample = SinglePathSample(at=round(at, 3), gbps=round(gbps(result.bytes - before, at - last), 4))
            last, before = at, result.bytes
            result.samples.append(sample)
            on_sample(sample)
    result.seconds, result.gbps = round(last, 3), round(gbps(result.bytes, last), 4)


@dataclass(frozen=True)
class DemoTransfer:
    """What is moved, and what happens to the planes meanwhile."""

    seconds: Annotated[float, typer.Option("-D", "--seconds", min=1, max=3600, help="Seconds of each transfer.")] = 8.0
    size: Annotated[
        str | None, typer.Option("-s", "--size", help="Bytes for MRC to move, such as 64M, instead of --seconds.")
    ] = None
    planes: Annotated[int, typer.Option("--planes", min=1, max=16, help="Number of loopback planes.")] = 4
    impair: Annotated[
        str | None, typer.Option("--impair", metavar="WORDS", help='Fault schedule: "at: 2s, down: plane 1; ...".')
    ] = None
    schedule: Annotated[
        Path | None, typer.Option("--schedule", metavar="FILE", help="YAML file with the fault schedule.")
    ] = None
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the content.")] = SEED
    tcp: Annotated[bool, typer.Option("--tcp/--no-tcp", help="First send by TCP over one of the planes.")] = True
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds without progress until failure.")
    ] = TIMEOUT


class Story:
    """TCP over the plane that goes down first, if one does, then MRC over all planes."""

    def __init__(self, asked: DemoTransfer) -> None:
        """Check the options."""
        self._asked = asked
        self._most = None if asked.size is None else -(-size_bytes(asked.size, "--size", PIECE) // PIECE)
        faults = faults_text(asked.impair, asked.schedule) or story_faults(asked.seconds, asked.planes)
        outages = outages_of(Schedule.parse(faults, "--impair"), asked.planes)
        self.result = DemoResult(ok=False, seed=asked.seed, faults=faults, outages=outages)

    def run(self, view: View, compilation: Compilation) -> None:
        """Play; the result says whether the memories are equal, or what failed."""
        try:
            self.run_single_path(view, compilation.is_running)
            view.print_line("")
            compilation.wait_for("live")
            self._run_memory(view)
        except MrcError as error:
            self.result.error = str(error)

    def run_single_path(self, view: View, beside_compilation: bool) -> None:
        """Send by TCP over the plane that goes down first, with its outages; nothing if no plane goes down."""
        if not self.result.outages or not self._asked.tcp:
            return
        if not can_take_down():
            view.print_line("no TCP to compare with: this kernel lets only root take its plane down")
            return
        plane, seconds = self.result.outages[0].plane, self._asked.seconds
        found = self.result.single_path = SinglePath(plane=plane, beside_compilation=beside_compilation)
        client, server = (
            loopback_planes(plane + 1, side)[plane] for side in (EndpointSide.CLIENT, EndpointSide.SERVER)
        )
        outages = [each for each in self.result.outages if each.plane == plane]
        meanwhile = "; the engine is compiled meanwhile" if beside_compilation else ""
        view.print_line(f"a single path: TCP over plane {plane}, for {seconds:g} s{meanwhile}")
        for each in outages:
            up = f", up at {each.up:g} s" if each.up else ""
            view.print_line(f"  plane {plane} goes down at {each.down:g} s{up}")
        transfer(found, (client, server), outages, seconds, view.on_tcp)

    def _run_memory(self, view: View) -> None:
        """Send over all planes by MRC, to a second process."""
        asked, result = self._asked, self.result
        endpoint = EndpointOptions(tuple(loopback_planes(asked.planes, EndpointSide.CLIENT)))
        arguments = [str(asked.planes), result.faults, str(asked.seed)]
        with open_endpoint(endpoint) as context, SecondProcess(arguments, memory_transfer.__name__) as receiver:
            view.print_line(context.describe())
            view.begin(result.outages, asked.planes)
            sender = MemorySender(context, result, asked.timeout)
            sender.run(receiver.port, receiver.token, asked.seconds, self._most, view.on_sample)
