"""How long does an 8-byte write with immediate take to the peer and back, against a bare UDP ping-pong?

Both in Python, blocking, two processes on loopback, in turns. Mark: at most 3 times as long.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from bench._support.live_peers import Task, planes, run_pair

ROUNDS, WARM = 4000, 500


def bare_server(pipe: Pipe, task: Task) -> None:
    """Return every datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        pipe.send(sock.getsockname()[1])
        for _ in range(ROUNDS + WARM):
            data, where = sock.recvfrom(64)
            sock.sendto(data, where)
        pipe.recv()
        pipe.send(0)


def bare_client(pipe: Pipe, task: Task) -> None:
    """Time every round trip."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        where = ("127.0.0.1", pipe.recv())
        sock.settimeout(10)
        times = []
        for _ in range(ROUNDS + WARM):
            began = time.perf_counter_ns()
            sock.sendto(b"01234567", where)
            sock.recvfrom(64)
            times.append(time.perf_counter_ns() - began)
        pipe.send(times[WARM:])


def _pong(peer: Any, region: Any, is_first: bool) -> list[int]:
    target, times = peer.remote.regions[0], []
    peer.qp.post_recv(256)
    peer.barrier(60)
    for turn in range(ROUNDS + WARM):
        began = time.perf_counter_ns()
        if is_first:
            peer.qp.post_write(region, target.addr, target.r_key, immediate=turn, signaled=False)
        peer.recv_cq.wait(10, 1)
        if not is_first:
            peer.qp.post_write(region, target.addr, target.r_key, immediate=turn, signaled=False)
        times.append(time.perf_counter_ns() - began)
        if turn % 128 == 127:
            peer.qp.post_recv(128)
    return times[WARM:]


def server(pipe: Pipe, task: Task) -> None:
    """Answer every write with a write."""
    from openmrc.verbs import Context, ContextAttr, Listener

    attr = ContextAttr(**task.options)
    with Context(planes(1), attr) as context, Listener(context, "127.0.0.1", 0) as listener:
        region = context.alloc_pd().reg_mr(bytearray(8))
        pipe.send(listener.port)
        with listener.accept(regions=[region], timeout=300) as peer:
            _pong(peer, region, False)
            pipe.recv()
            pipe.send(0)
            peer.barrier(30)


def client(pipe: Pipe, task: Task) -> None:
    """Time every round trip."""
    from openmrc.verbs import Context, ContextAttr, connect

    with Context(planes(0), ContextAttr(**task.options)) as context:
        region = context.alloc_pd().reg_mr(bytearray(8))
        with connect(context, "127.0.0.1", pipe.recv(), regions=[region], timeout=300) as peer:
            pipe.send(_pong(peer, region, True))
            peer.barrier(30)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy-poll", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    task = Task(options={"busy_poll": asked.busy_poll})
    bare = [run_pair(bare_server, bare_client, task)[1]]
    ours = run_pair(server, client, task)[1]
    bare.append(run_pair(bare_server, bare_client, task)[1])
    bare_us = statistics.mean(statistics.median(times) for times in bare) / 1000
    ours_us = statistics.median(ours) / 1000
    p99 = statistics.quantiles(ours, n=100)[98] / 1000
    result = {"ours_us": ours_us, "ours_p99_us": p99, "bare_us": bare_us, "ratio": ours_us / bare_us, "mark": 3.0}
    if asked.json:
        print(json.dumps(result))
    else:
        print(f"8-byte write with immediate, round trip: {ours_us:.1f} us (p99 {p99:.1f}); bare UDP: {bare_us:.1f} us")
        print(f"ratio {result['ratio']:.2f} (mark: 3)")


if __name__ == "__main__":
    main()
