"""How long does an 8-byte write with immediate take there and back through the compiled entries, without Python?

Both ends are compiled loops over `event_loop.poll` or `wait`, and `post`, as a library in C would be; bare UDP is
compiled too. All spin, or all block. Two processes on loopback, each on a processor of its own, in turns. Marks:
spinning at most 2.2 times bare UDP on 1 plane, 3 times on 4; blocking at most 1.3 times.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import struct
import sys
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np

from harness.live_peers import Task, planes, run_pair
from openmrc.core.calls import address_of_entry, by_address
from openmrc.core.jit import entry, external
from openmrc.live.datapath import handles
from openmrc.live.datapath.libc import MSG_DONTWAIT, Words, monotonic, receive_bytes
from openmrc.live.datapath.loop import attendance
from openmrc.live.datapath.rows import COMMANDS
from openmrc.units import PS_PER_US

WARM = 0.1  # of the rounds
RECEIVES = 128
MARKS = {(1, "spin"): 2.2, (4, "spin"): 3.0, (1, "block"): 1.3, (4, "block"): 1.3}
HEADING = "planes   how  round trip      p99  bare UDP  ratio  mark  sendmmsg a side and round trip"
_TIME = 10**12  # ps, of one wait
_LONGEST = 30 * 10**12  # ps, for one round trip
_poll, _wait, _post = (by_address(each) for each in (attendance.poll, attendance.wait, attendance.post))
_send_bytes = external(None, "send", "int64", "int64", "int64", "int64", "int64")


@entry
def ping_pong(at: int, entries: Words, write: Words, is_first: int, spins: int, times: Words) -> int:
    """Write and wait in turn with the peer, `len(times)` times; return how often: less if an answer takes `_LONGEST`.

    `entries` are the addresses of poll, wait and post; `write` is queue pair, completion queue, local and remote
    address, and key.
    """
    datapath = handles.datapath_at(at)
    nic, cq = datapath.nic[0], datapath.cqs[write[1]]
    clock = datapath.clock[2]
    for turn in range(len(times)):
        began = monotonic(clock, nic.epoch)
        for step in range(2):
            if step != is_first:
                row = datapath.commands[nic.posted & (COMMANDS - 1)]
                row.qp, row.local, row.length, row.va, row.r_key = write[0], write[2], 8, write[3], write[4]
                row.immediate, row.has_immediate, row.signaled, row.is_receive = turn & 0xFFFF, 1, 0, 0
                _post(entries[2], at, 1)
            else:
                while cq.published == cq.taken:
                    if spins == 1:
                        _poll(entries[0], at, write[1])
                    else:
                        _wait(entries[1], at, write[1], _TIME, -1)
                    if monotonic(clock, nic.epoch) - began > _LONGEST:
                        return turn
        cq.taken += 1  # not all: the answer to a write of ours may have come before this
        times[turn] = monotonic(clock, nic.epoch) - began
        if turn % RECEIVES == RECEIVES - 1:
            for number in range(RECEIVES):
                row = datapath.commands[(nic.posted + number) & (COMMANDS - 1)]
                row.qp, row.is_receive, row.wr_id = write[0], 1, 0
            _post(entries[2], at, RECEIVES)
    return len(times)


@entry
def bare_ping_pong(descriptor: int, is_first: int, flags: int, times: Words, memory: Words) -> int:
    """Send and receive in turn with the peer, over a connected socket; return as `ping_pong` does."""
    at = memory.ctypes.data
    for turn in range(len(times)):
        began = monotonic(memory[2:], 0)
        for step in range(2):
            if step != is_first:
                _send_bytes(descriptor, at, 8, 0)
            else:
                while receive_bytes(descriptor, at, 16, flags) < 0:
                    if monotonic(memory[2:], 0) - began > _LONGEST:
                        return turn
        times[turn] = monotonic(memory[2:], 0) - began
    return len(times)


def _times(task: Task) -> Any:
    return np.zeros(int(task.options["rounds"] * (1 + WARM)), np.int64)


def _warmed(times: Any, turns: int) -> Any:
    """Return the times (us) after the warm-up of a run of so many turns."""
    if turns < len(times):
        raise SystemExit(f"no answer to round trip {turns} of {len(times)}")
    return times[int(len(times) * WARM) :] / PS_PER_US


def _measure(peer: Any, region: Any, task: Task, is_first: bool) -> Any:
    runtime, target = peer.context.nic.runtime, peer.remote.regions[0]
    called = (attendance.poll, attendance.wait, attendance.post)
    entries = np.array([address_of_entry(each) for each in called], np.int64)
    write = np.array([peer.qp.row, peer.recv_cq.row, region.addr, target.addr, target.r_key], np.int64)
    peer.qp.post_recv(2 * RECEIVES)
    times = _times(task)
    ping_pong(runtime.at, entries, write, int(is_first), int(task.options["spins"]), times[:0])
    peer.barrier(300)
    before = runtime.nic.sendings
    turns = ping_pong(runtime.at, entries, write, int(is_first), int(task.options["spins"]), times)
    return _warmed(times, turns), (runtime.nic.sendings - before) / len(times)


def server(pipe: Pipe, task: Task) -> None:
    """Answer every write with a write."""
    from openmrc.verbs import Context, ContextAttr, Listener

    with (
        Context(planes(1, task.options["planes"]), ContextAttr(poll_us=0)) as context,
        Listener(context, "127.0.0.1", 0) as listener,
    ):
        region = context.alloc_pd().reg_mr(bytearray(8))
        pipe.send(listener.port)
        with listener.accept(regions=[region], timeout=300) as peer:
            _, sendings = _measure(peer, region, task, False)
            pipe.recv()
            pipe.send(sendings)
            peer.barrier(30)


def client(pipe: Pipe, task: Task) -> None:
    """Time every round trip."""
    from openmrc.verbs import Context, ContextAttr, connect

    with Context(planes(0, task.options["planes"]), ContextAttr(poll_us=0)) as context:
        region = context.alloc_pd().reg_mr(bytearray(8))
        with connect(context, "127.0.0.1", pipe.recv(), regions=[region], timeout=300) as peer:
            pipe.send(_measure(peer, region, task, True))
            peer.barrier(30)


def _bare(pipe: Pipe, task: Task, is_first: bool) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 20_000 + is_first))
        sock.connect(("127.0.0.1", 20_000 + (not is_first)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))  # blocking receives end
        times, memory = _times(task), np.zeros(4, np.int64)
        flags = MSG_DONTWAIT if task.options["spins"] else 0
        bare_ping_pong(sock.fileno(), int(is_first), flags, times[:0], memory)
        if is_first:
            pipe.recv()
        else:
            pipe.send(0)
        return _warmed(times, bare_ping_pong(sock.fileno(), int(is_first), flags, times, memory))


def bare_server(pipe: Pipe, task: Task) -> None:
    """Return every datagram."""
    _bare(pipe, task, False)
    pipe.recv()
    pipe.send(0)


def bare_client(pipe: Pipe, task: Task) -> None:
    """Time every round trip."""
    pipe.send(_bare(pipe, task, True))


def row(count: int, how: str, turns: int, rounds: int) -> dict[str, Any]:
    """Return the round trips over `count` planes, spinning or blocking, and those of bare UDP."""
    task = Task(options={"planes": count, "spins": how == "spin", "rounds": rounds})
    ours, bare, sendings = [], [], 0.0
    for _ in range(turns):
        bare.append(run_pair(bare_server, bare_client, task)[1])
        theirs, (times, calls) = run_pair(server, client, task)
        ours.append(times)
        sendings = max(sendings, calls, theirs)
    medians = [statistics.median(float(np.median(times)) for times in each) for each in (ours, bare)]
    p99 = statistics.median(float(np.percentile(times, 99)) for times in ours)
    mark = MARKS[count, how]
    result = {"planes": count, "how": how, "us": medians[0], "p99_us": p99, "bare_us": medians[1]}
    return {**result, "ratio": medians[0] / medians[1], "mark": mark, "sendmmsg_per_round_trip": sendings}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20_000, help="round trips of each turn")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    print(HEADING, file=sys.stderr if asked.json else sys.stdout, flush=True)
    rows = []
    for count, how in MARKS:
        rows.append(row(count, how, asked.turns, asked.rounds))
        print(_line(rows[-1]), file=sys.stderr if asked.json else sys.stdout, flush=True)
    if asked.json:
        print(json.dumps(rows))


def _line(result: dict[str, Any]) -> str:
    times = "{us:8.1f} us {p99_us:5.1f} us {bare_us:6.1f} us {ratio:6.2f}".format(**result)
    return "{planes:6} {how:>5} {} {mark:5.1f}  {sendmmsg_per_round_trip:.2f}".format(times, **result)


if __name__ == "__main__":
    main()
