"""How long does it take to set up many connections between two endpoints?

    python -m bench.live.connections [--count 1000] [--token]

Two processes on loopback, one plane, one context each; the client calls `connect` again and again.
Prints the seconds until the last connection is ready, the slowest of them, and how long the greetings
alone take. Mark: 1,000 connections in 2 s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.live_peers import Task, planes, run_pair

MARK_S = 2.0  # for 1,000
TOKEN = "a token of both sides"


def attributes(count: int) -> Any:
    """Return the sizes of a context for so many queue pairs."""
    from openmrc.verbs import ContextAttr

    return ContextAttr(max_qp=count, max_mpr=1, max_wimm=4, max_send_wr=4, max_recv_wr=4, evs_per_plane=4)


def options() -> Any:
    """Return what each connection asks for."""
    from openmrc.verbs import ConnectionOptions

    return ConnectionOptions(mpr=1, max_wimm=4, max_send_wr=4, max_recv_wr=4)


def serve(pipe: Pipe, task: Task) -> None:
    """Accept all of them."""
    from openmrc.verbs import Context, Listener

    count, token = task.options["count"], task.options["token"]
    with (
        Context(planes(1, 1), attributes(count)) as context,
        Listener(context, "127.0.0.1", 0, token=token) as listener,
    ):
        region = context.alloc_pd().reg_mr(bytearray(4096))
        pipe.send(listener.port)
        accepted = [listener.accept(regions=[region], options=options(), timeout=60) for _ in range(count)]
        pipe.recv()
        pipe.send(len(accepted))


def call(pipe: Pipe, task: Task) -> None:
    """Connect, one after the other."""
    from openmrc.verbs import Context, connect

    count, token = task.options["count"], task.options["token"]
    with Context(planes(0, 1), attributes(count)) as context:
        region, port = context.alloc_pd().reg_mr(bytearray(4096)), pipe.recv()
        times, made = [time.monotonic()], []
        for _ in range(count):
            made.append(
                connect(context, "127.0.0.1", port, regions=[region], options=options(), token=token, timeout=60)
            )
            times.append(time.monotonic())
        made[-1].write(region, made[-1].remote.regions[0], timeout=20)
        pipe.send((times[-1] - times[0], max(later - sooner for sooner, later in itertools.pairwise(times))))


def greetings(count: int, token: str) -> float:
    """Return the seconds that so many greetings take, without queue pairs."""
    from openmrc.live.objects.exchange import dial
    from openmrc.live.objects.server import RendezvousServer

    server = RendezvousServer(["127.0.0.1"], 0)
    server.start(token.encode())
    began = time.monotonic()
    for _ in range(count):
        channel = dial("127.0.0.1", server.port, began + 60, token)
        channel.tell({})
        server.accept(began + 60).channel.close()
        channel.close()
    seconds = time.monotonic() - began
    server.close()
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--token", action="store_true", help="both sides prove that they hold one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    token = TOKEN if asked.token else ""
    _, (seconds, slowest) = run_pair(serve, call, Task(options={"count": asked.count, "token": token}))
    greeting = greetings(asked.count, token)
    result = {"count": asked.count, "seconds": seconds, "slowest_ms": slowest * 1e3, "greetings_s": greeting}
    if asked.json:
        print(json.dumps(result))
    else:
        print(f"{asked.count} connections in {seconds:.2f} s (mark: 1,000 in {MARK_S:g} s)")
        print(f"the slowest: {slowest * 1e3:.1f} ms")
        print(f"their greetings alone: {greeting:.2f} s")


if __name__ == "__main__":
    main()
