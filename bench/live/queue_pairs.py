"""How much of one queue pair's goodput do many queue pairs between the same two endpoints move, and how evenly?

1 MiB writes on 4 planes, two processes on loopback, one queue pair first and last; up to 64 queue pairs are measured by
the code of `mrc perf`, more by a loop of its own. Marks: 4 to 64 queue pairs move at least 85 % and 1,000 at least 50 %
of what one does, Jain's fairness index of the bytes sent is 0.98 or more, and no queue pair times out unless the kernel
dropped a packet. Fails when a queue pair did not finish.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import fields
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.live_peers import Task, planes, run_pair
from harness.perf_pair import perf

MARKS = {4: 0.85, 16: 0.85, 64: 0.85, 1000: 0.5}
MOST_OF_TOOL = 64  # queue pairs of `mrc perf`
FAIR = 0.98
MTU = 4096
DRAIN_SECONDS = 60.0
SUMMED = ("sent_packets", "retransmitted", "timeouts", "inferred_losses", "spurious", "probes_sent", "duplicates")


def server(pipe: Pipe, task: Task) -> None:
    """Give memory to the sender's queue pairs and stay until told to stop."""
    from harness.many_queue_pairs import context_attr, open_group
    from openmrc.verbs import Context, Listener

    count, depth, mpr = (task.options[name] for name in ("count", "depth", "mpr"))
    with (
        Context(planes(1), context_attr(count, depth, mpr)) as context,
        Listener(context, "127.0.0.1", 0) as listener,
    ):
        region = context.alloc_pd().reg_mr(bytearray(task.size * task.slots))
        pipe.send(listener.port)
        with listener.accept(regions=[region], timeout=300) as peer:
            group = open_group(context, peer, region, count, depth, mpr, MTU)
            pipe.recv()
            pipe.send(sum(counters.kernel_drops for counters in context.plane_counters()))
            peer.barrier(30)
            group.close()


def client(pipe: Pipe, task: Task) -> None:
    """Keep every queue pair's send queue full for a while and report what each one moved."""
    from harness.many_queue_pairs import context_attr, open_group
    from openmrc.verbs import Context, connect

    count, depth, mpr = (task.options[name] for name in ("count", "depth", "mpr"))
    with Context(planes(0), context_attr(count, depth, mpr)) as context:
        region = context.alloc_pd().reg_mr(bytearray(task.size))
        with connect(context, "127.0.0.1", pipe.recv(), regions=[region], timeout=300) as peer:
            began = time.monotonic()
            group = open_group(context, peer, region, count, depth, mpr, MTU)
            setup = time.monotonic() - began
            result = Load(group, peer, region, task).run()
            drops = sum(counters.kernel_drops for counters in context.plane_counters())
            pipe.send({"setup_seconds": setup, "returning_drops": drops, **result})
            peer.barrier(30)
            group.close()


class Load:
    """Writes on every queue pair of a group, as many outstanding as the depth allows."""

    def __init__(self, group: Any, peer: Any, region: Any, task: Task) -> None:
        from openmrc.verbs import SendWr

        self._group, self._task = group, task
        self._depth: int = task.options["depth"]
        target = peer.remote.regions[0]
        self._requests = [
            [
                SendWr(local=region, remote_addr=target.addr + slot * task.size, r_key=target.r_key, wr_id=index)
                for slot in range(task.slots)
            ]
            for index in range(len(group.qps))
        ]
        self._posted = [0] * len(group.qps)
        self._done = [0] * len(group.qps)

    def run(self) -> dict[str, Any]:
        """Warm up, measure for the task's seconds, let everything finish."""
        self._fill()
        self._for(self._task.options["warm"])
        before, done_before, began = self._counters(), sum(self._done), time.monotonic()
        self._for(self._task.seconds)
        seconds, after, done = time.monotonic() - began, self._counters(), sum(self._done)
        self._drain()
        end = self._counters()
        moved = [late["sent_bytes"] - early["sent_bytes"] for early, late in zip(before, after, strict=True)]
        return {
            "gbps": (done - done_before) * self._task.size * 8 / seconds / 1e9,
            "jain": jain(moved),
            "least_mb": min(moved) / 1e6,
            "most_mb": max(moved) / 1e6,
            "unfinished": sum(done < posted for done, posted in zip(self._done, self._posted, strict=True)),
            **{name: sum(each[name] for each in end) for name in SUMMED},
        }

    def _for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._take(refill=True)

    def _drain(self) -> None:
        end = time.monotonic() + DRAIN_SECONDS
        while sum(self._done) < sum(self._posted) and time.monotonic() < end:
            self._take(refill=False)

    def _fill(self) -> None:
        for _ in range(self._depth):
            for index in range(len(self._posted)):
                self._post(index)

    def _take(self, refill: bool) -> None:
        for completion in self._group.cq.wait(30, 64):
            if not completion.ok:
                raise RuntimeError(completion.error)
            self._done[completion.wr_id] += 1
            if refill:
                self._post(completion.wr_id)

    def _post(self, index: int) -> None:
        self._group.qps[index].post_send(self._requests[index][self._posted[index] % self._task.slots])
        self._posted[index] += 1

    def _counters(self) -> list[dict[str, Any]]:
        every = [qp.counters() for qp in self._group.qps]
        return [{field.name: getattr(each, field.name) for field in fields(each)} for each in every]


def jain(shares: list[int]) -> float:
    """Return Jain's fairness index: 1 if all shares are equal, 1/n if one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def measure_by_tool(count: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Return what `count` queue pairs moved, and its cost, as `mrc perf -q COUNT -s SIZE -D SECONDS` measures it."""
    plan = {"sizes": [asked.size], "iterations": 0, "duration": asked.seconds, "queue_pairs": count}
    theirs, ours = perf(plan)
    counters = ours["counters"]
    return {
        "queue_pairs": count,
        "gbps": ours["gbps"],
        "jain": jain([each["sent_bytes"] for each in counters]),
        "unfinished": 0,
        "kernel_drops": ours["kernel_drops"] + theirs["kernel_drops"],
        "cpu_s_per_gb": [round(each["cpu"] / ours["bytes"] * 1e9, 4) for each in (ours, theirs)],
        "sendmmsg_per_gib": [round(each["sendings"] / ours["bytes"] * (1 << 30)) for each in (ours, theirs)],
        **{name: sum(each[name] for each in counters) for name in SUMMED},
    }


def measure(count: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Return what `count` queue pairs moved."""
    if count <= MOST_OF_TOOL:
        return measure_by_tool(count, asked)
    depth = max(2, min(32, 64 // count))
    warm = 0.5 if count < 256 else 2.0
    options = {"count": count, "depth": depth, "mpr": asked.mpr, "warm": warm}
    drops, result = run_pair(server, client, Task(seconds=asked.seconds, size=asked.size, options=options))
    return {"queue_pairs": count, "kernel_drops": drops + result.pop("returning_drops"), **result}


def failures(row: dict[str, Any]) -> list[str]:
    """Return what is wrong with a row, each in a few words."""
    found = []
    if row["unfinished"]:
        found.append(f"{row['unfinished']} queue pairs did not finish")
    if row["jain"] < FAIR:
        found.append(f"Jain {row['jain']:.3f} < {FAIR}")
    if row["timeouts"] and not row["kernel_drops"]:
        found.append(f"{row['timeouts']} timeouts without a loss")
    return found


def missed(row: dict[str, Any]) -> list[str]:
    """Return the mark that a row misses, if it does."""
    mark = MARKS.get(row["queue_pairs"], 0.0)
    return [f"ratio {row['ratio']:.2f} < {mark}, missed"] if row["ratio"] < mark else []


def main() -> int:
    """Measure, print, and return 1 if something is wrong; a missed mark is printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1,4,16,64,256,1000,1", help="queue pairs, comma-separated")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--mpr", type=int, default=32, help="unit 128 PSNs")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = [measure(int(count), asked) for count in asked.counts.split(",")]
    ones = [row["gbps"] for row in rows if row["queue_pairs"] == 1] or [rows[0]["gbps"]]
    for row in rows:
        row["ratio"] = row["gbps"] * len(ones) / sum(ones)
        row["failures"] = failures(row)
    if asked.json:
        print(json.dumps({"rows": rows, "marks": MARKS}))
    else:
        print("queue pairs   Gb/s  ratio  Jain    timeouts  retransm.  spurious   probes  kernel drops  cost")
        for row in rows:
            print(
                f"{row['queue_pairs']:11} {row['gbps']:6.1f} {row['ratio']:6.2f} {row['jain']:6.3f} "
                f"{row['timeouts']:10} {row['retransmitted']:11} {row['spurious']:9} {row['probes_sent']:8} "
                f"{row['kernel_drops']:13}  {row.get('cpu_s_per_gb', '')} {row.get('sendmmsg_per_gib', '')}  "
                f"{'; '.join(row['failures'] + missed(row))}"
            )
    return int(any(row["failures"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
