"""Two processes on loopback that several live benchmarks need: a receiver with memory, a sender that fills it."""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any

from openmrc.live.datapath.libc import SOL_UDP, UDP_GRO, UDP_SEGMENT

PLANES = 4
DATAGRAM, TRAIN = 4150, 15  # bytes, packets: what one packet of 4 KiB is on the wire, and how many fit a call
_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Task:
    """What the two processes shall do."""

    seconds: float = 4.0
    warm: float = 0.5  # seconds before the count begins
    size: int = 1 << 20
    depth: int = 32  # writes outstanding, at most the connection's `max_send_wr`
    together: int = 8  # writes posted in one call, the last of which reports
    batched: bool = False  # as WriteBatches made beforehand, not as SendWr made for each call
    slots: int = 8  # places of `size` bytes in the receiver's memory
    total: int = 0  # bytes to send; 0: for `seconds`
    faults: str = ""  # on the receiver
    returning: str = ""  # faults on the sender: what comes back
    options: dict[str, Any] = field(default_factory=dict)


def planes(side: int, count: int = PLANES) -> list[str]:
    """Return the local addresses of one side."""
    return [f"127.66.{plane + 1}.{side + 1}" for plane in range(count)]


def run_pair(server: Callable[[Pipe, Task], None], client: Callable[[Pipe, Task], None], task: Task) -> tuple[Any, Any]:
    """Run both in processes of their own; the server tells the client one thing, both return one."""
    ours, theirs = [_SPAWN.Pipe() for _ in range(2)], []
    for side, (function, (_, end)) in enumerate(zip((server, client), ours, strict=True)):
        theirs.append(_SPAWN.Process(target=_run, args=(function, side, end, task), daemon=True))
    for process in theirs:
        process.start()
    for _, end in ours:
        end.close()  # or the end of a process that failed would stay open here
    (server_pipe, _), (client_pipe, _) = ours
    client_pipe.send(_within(server_pipe, "server"))
    result = _within(client_pipe, "client")
    server_pipe.send("done")
    other = _within(server_pipe, "server")
    for process in theirs:
        process.join(10)
    return other, result


def _run(function: Callable[[Pipe, Task], None], side: int, pipe: Pipe, task: Task) -> None:
    """Run one side, bare or not, on its own half of the processors, as one would with `taskset` or `netperf -T`."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[side::2] or processors)
    function(pipe, task)


def _within(pipe: Pipe, who: str, seconds: float = 900.0) -> Any:
    if not pipe.poll(seconds):
        raise TimeoutError(f"the {who} said nothing for {seconds:g} s")
    try:
        return pipe.recv()
    except EOFError:
        raise ChildProcessError(f"the {who} ended early") from None


def _attributes(task: Task) -> Any:
    """Return attributes of a context whose send queues may be as deep as the task wants."""
    from openmrc.verbs import ContextAttr

    return ContextAttr(max_send_wr=max(ContextAttr.max_send_wr, task.depth))


def receiver(pipe: Pipe, task: Task) -> None:
    """Give memory to the sender and stay until told to stop."""
    from openmrc.verbs import ConnectionOptions, Context, Listener

    with (
        Context(planes(1), _attributes(task), faults=task.faults or None) as context,
        Listener(context, "127.0.0.1", 0) as listener,
    ):
        region = context.alloc_pd().reg_mr(bytearray(task.size * task.slots))
        pipe.send(listener.port)
        with listener.accept(regions=[region], timeout=300, options=ConnectionOptions(**task.options)) as connection:
            pipe.recv()
            pipe.send([counters.kernel_drops for counters in context.plane_counters()])
            connection.barrier(30)


def sender(pipe: Pipe, task: Task) -> None:
    """Fill the receiver's memory again and again and report bytes and seconds."""
    from openmrc.verbs import ConnectionOptions, Context, connect

    with Context(planes(0), _attributes(task), faults=task.returning or None) as context:
        region = context.alloc_pd().reg_mr(bytearray(task.size))
        options = ConnectionOptions(**task.options)
        with connect(context, "127.0.0.1", pipe.recv(), regions=[region], timeout=300, options=options) as peer:
            _stream(peer, region, task, task.warm, 0)
            sent, seconds = _stream(peer, region, task, task.seconds, task.total)
            counters = peer.qp.counters()
            pipe.send(
                {
                    "bytes": sent,
                    "seconds": seconds,
                    "counters": {k: getattr(counters, k) for k in counters.__dataclass_fields__},
                }
            )
            peer.barrier(30)


def _stream(peer: Any, region: Any, task: Task, seconds: float, total: int) -> tuple[int, float]:
    """Keep `depth` writes posted, `together` at a time; return bytes completed and the seconds they took."""
    posted, done, began = 0, 0, time.monotonic()
    goal = total // task.size if total else 1 << 60
    post = _poster(peer, region, task)
    while done < goal and (total or time.monotonic() - began < seconds):
        while posted - done <= task.depth - task.together and posted < goal:
            post(posted)
            posted += task.together
        done += task.together * _completed(peer)
    took = time.monotonic() - began
    finished = done
    while done < posted:
        done += task.together * _completed(peer)
    return finished * task.size, took


def _poster(peer: Any, region: Any, task: Task) -> Callable[[int], None]:
    """Return what posts the next writes, given the number of the first."""
    from openmrc.verbs import WriteBatch

    if not task.batched:
        return lambda number: peer.qp.post_send(_writes(peer, region, task, number))
    target = peer.remote.regions[0]
    places = [k % task.slots * task.size for k in range(task.together)]
    batch = WriteBatch(region, target.addr, target.r_key, lengths=task.size, remote_offsets=places)
    return lambda number: peer.qp.post_batch(batch)


def _writes(peer: Any, region: Any, task: Task, number: int) -> list[Any]:
    """Return the next writes; only the last of them reports its completion, which stands for all."""
    from openmrc.verbs import SendWr

    target = peer.remote.regions[0]
    places = [target.addr + (number + k) % task.slots * task.size for k in range(task.together)]
    last = len(places) - 1
    return [SendWr(local=region, remote_addr=at, r_key=target.r_key, signaled=k == last) for k, at in enumerate(places)]


def _completed(peer: Any) -> int:
    completions = peer.send_cq.wait(30)
    for completion in completions:
        if not completion.ok:
            raise RuntimeError(completion.error)
    return len(completions)


def goodput(task: Task) -> dict[str, Any]:
    """Return Gb/s of payload of one queue pair, and what the sender counted."""
    drops, result = run_pair(receiver, sender, task)
    return {"gbps": result["bytes"] * 8 / result["seconds"] / 1e9, "kernel_drops": sum(drops), **result}


def bare_receiver(pipe: Pipe, task: Task) -> None:
    """Take trains of datagrams off a socket, and do nothing with them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(2.0)
        pipe.send(sock.getsockname()[1])
        buffer, taken, began = bytearray(1 << 16), 0, time.monotonic()
        last = began
        try:
            while True:
                length = sock.recv_into(buffer)
                if not taken:
                    began = time.monotonic()
                if length == 1:
                    break
                taken += length
                last = time.monotonic()
        except TimeoutError:
            pass
        pipe.recv()
        pipe.send(taken * 8 / max(last - began, 1e-9) / 1e9)


def bare_sender(pipe: Pipe, task: Task) -> None:
    """Send trains of datagrams as fast as the kernel takes them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", pipe.recv()))
        payload = bytes(DATAGRAM * TRAIN)
        segment = [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", DATAGRAM))]
        end = time.monotonic() + task.seconds
        while time.monotonic() < end:
            sock.sendmsg([payload], segment)
        time.sleep(0.05)
        sock.send(b"x")
        pipe.send(0)


def bare_goodput(task: Task) -> float:
    """Return Gb/s that arrive at a bare UDP_SEGMENT/UDP_GRO pair of processes."""
    arrived, _ = run_pair(bare_receiver, bare_sender, task)
    return float(arrived)
