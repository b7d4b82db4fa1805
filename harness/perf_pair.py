"""The two ends of `mrc perf`, each in a process of its own on its own processor: what a user's tool measures."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.live_peers import PLANES, Task, planes, run_pair

TIMEOUT = 60.0  # s without progress


def server(pipe: Pipe, task: Task) -> None:
    """Be `mrc perf` without a host; return the seconds of processor that the runs took."""
    from openmrc.programs.endpoint.listening import Refusals
    from openmrc.programs.perf.session import PerfServer
    from openmrc.verbs import Context, Listener

    attr, findings, asked, options = _parts("server", task)
    with Context(planes(1, task.options["planes"]), attr) as context, Listener(context, "127.0.0.1", 0) as listener:
        pipe.send(listener.port)
        began = time.process_time()
        PerfServer(context, asked, options, findings).run(listener, TIMEOUT, Refusals(print))
        spent = time.process_time() - began
        pipe.recv()
        drops = sum(each.kernel_drops for each in context.plane_counters())
        pipe.send({"cpu": spent, "sendings": context.nic.runtime.nic.sendings, "kernel_drops": drops})


def client(pipe: Pipe, task: Task) -> None:
    """Be `mrc perf HOST`; return what it reports of each run."""
    from dataclasses import asdict, replace

    from openmrc.programs.perf.session import Client
    from openmrc.verbs import Context

    attr, findings, asked, options = _parts("client", task)
    port = pipe.recv()
    with Context(planes(0, task.options["planes"]), attr) as context:
        began = time.process_time()
        Client(context, asked, replace(options, port=port), findings).run("127.0.0.1")
        run = findings.runs[-1]
        pipe.send(
            {
                "cpu": time.process_time() - began,
                "sendings": context.nic.runtime.nic.sendings,
                "gbps": run.ours.bytes * 8e-9 / run.ours.seconds,
                "bytes": (run.ours.iterations + run.ours.late) * run.size,
                "times": run.times,
                "kernel_drops": sum(each.kernel_drops for each in context.plane_counters()),
                "counters": [asdict(each) for each in findings.counters],
            }
        )


def _parts(role: str, task: Task) -> tuple[Any, ...]:
    from openmrc.programs.perf.report import Details, Findings
    from openmrc.programs.perf.session import SessionOptions
    from openmrc.programs.perf.words import PerfPlan
    from openmrc.verbs import ConnectionOptions, ContextAttr

    plan = PerfPlan(**task.options["plan"])
    attr = ContextAttr(max_qp=max(plan.queue_pairs, 8), poll_us=task.options.get("poll_us"))
    asked = ConnectionOptions(max_send_wr=plan.depth, max_recv_wr=600)
    return attr, Findings(plan, Details(ok=True, role=role)), asked, SessionOptions(port=0, timeout=TIMEOUT)


def perf(
    plan: dict[str, Any], count: int = PLANES, poll_us: float | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the server and the client of one test measured, over so many planes."""
    theirs, ours = run_pair(server, client, Task(options={"plan": plan, "planes": count, "poll_us": poll_us}))
    return theirs, ours


def latency(size: int, rounds: int, count: int = PLANES, poll_us: float | None = None) -> dict[str, float]:
    """Return what `mrc perf --lat` prints, in us: `t_typical` is the median of half a round trip."""
    from openmrc.programs.perf.words import Test

    plan = {"test": Test.LATENCY, "sizes": [size], "iterations": rounds, "warmup": rounds // 8}
    times: dict[str, float] = perf(plan, count, poll_us)[1]["times"]
    return times
