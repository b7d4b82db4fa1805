"""How soon is a silenced plane used again after it returns?

Silences plane 1 for a while under a stream of writes, then times from its return until data arrives
on it again. Mark: within one probe period (1 s, the cap of the back-off). Outages of 1 s and 1 min;
the hour is a matter of virtual time and belongs to the engine's tests.
"""

from __future__ import annotations

import argparse
import json
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.live_peers import Task, planes, run_pair

PROBE_PERIOD = 1.0  # s: Settings.probe_interval_max_us
PLANE = 1
WRITE = 64 << 10


def server(pipe: Pipe, task: Task) -> None:
    """Silence the plane, give it back, and wait for data on it."""
    from openmrc.verbs import Context, Listener

    with Context(planes(1)) as context, Listener(context, "127.0.0.1", 0) as listener:
        region = context.alloc_pd().reg_mr(bytearray(WRITE))
        pipe.send(listener.port)
        with listener.accept(regions=[region], timeout=300) as peer:
            time.sleep(0.5)
            context.impair(f"down: plane {PLANE}")
            time.sleep(task.seconds)
            before = context.plane_counters()[PLANE].received_bytes
            context.impair(f"up: plane {PLANE}")
            began = time.monotonic()
            while context.plane_counters()[PLANE].received_bytes == before and time.monotonic() - began < 30:
                time.sleep(0.001)
            back = time.monotonic() - began
            peer.tell("stop")
            pipe.recv()
            pipe.send(back)
            peer.barrier(30)


def client(pipe: Pipe, task: Task) -> None:
    """Write now and then until told to stop."""
    import select

    from openmrc.verbs import Context, connect

    with Context(planes(0)) as context:
        region = context.alloc_pd().reg_mr(bytearray(WRITE))
        with connect(context, "127.0.0.1", pipe.recv(), regions=[region], timeout=300) as peer:
            poller = select.poll()
            poller.register(peer.channel.fileno(), select.POLLIN)
            while not poller.poll(1):
                peer.write(region, peer.remote.regions[0], timeout=30)
            peer.hear(str, timeout=5)
            pipe.send(0)
            peer.barrier(30)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outages", type=float, nargs="*", default=[1.0, 60.0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    back: dict[str, Any] = {
        f"{outage:g}": run_pair(server, client, Task(seconds=outage))[0] for outage in asked.outages
    }
    worst = max(back.values())
    result = {"back_s_after_outage_s": back, "ratio": worst / PROBE_PERIOD, "mark": 1.0}
    if asked.json:
        print(json.dumps(result))
        return
    for outage, seconds in back.items():
        print(f"silent for {outage} s: used again {seconds * 1e3:.0f} ms after its return")
    print(f"ratio to a probe period of {PROBE_PERIOD:g} s: {result['ratio']:.2f} (mark: 1)")


if __name__ == "__main__":
    main()
