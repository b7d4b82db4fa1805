"""Measure the effect of pulled cables on training across kernel SRv6, over MRC and over Gloo.

Run as `sudo python -m bench.train.lab`. Two hosts of a lab train the same network with DDP, first over MRC, then over
Gloo, which uses TCP over the first plane. In both runs the same cables of the first host are pulled at the same times.
Prints a line per backend: step times before the first pull, while a cable is out, and after the last pull; the loss;
the retransmitted packets; and the error of the job. `--series FILE` keeps every step, for `bench.train.lab_chart`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness import labs
from openmrc.base.faults import Schedule
from openmrc.fabric.addressing.usid import identity
from openmrc.lab.faults import Breaker, ExecutedStep
from openmrc.programs.training.digits import Training, train

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab-slow.yaml"
NAME = "bench-train"
HOSTS = ("h0", "h5")
PORT = 29600
BEFORE_S, EVERY_S, OUT_S = 2.0, 1.5, 0.6
_SECONDS = 240.0


class RankResult(msgspec.Struct):
    """The measurements of a rank; times of the monotonic clock, which all namespaces share."""

    started: float  # s, start of the first step
    training: Training


def rank_main(backend: str, rank: int, store: str, steps: int, address: str, out: str) -> None:
    """Run one rank; rank 0 writes its result to `out`."""
    import torch.distributed as dist

    if backend == "gloo":
        _register_gloo_on(address)
    name = "mrc" if backend == "mrc" else "gloo_on"
    timeout = timedelta(seconds=60)
    dist.init_process_group(name, init_method=f"tcp://{store}:{PORT}", rank=rank, world_size=2, timeout=timeout)
    train(5)
    dist.barrier()
    started = time.monotonic()
    Path(f"{out}.started").touch()
    training = train(steps)
    if rank == 0:
        Path(out).write_bytes(msgspec.json.encode(RankResult(started, training)))
    dist.destroy_process_group()


def _register_gloo_on(address: str) -> None:
    """Register Gloo bound to `address`; torch's own uses the address that the host name resolves to."""
    import torch.distributed as dist

    def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = timeout
        return dist.ProcessGroupGloo(store, rank, size, options)

    dist.Backend.register_backend("gloo_on", create, devices=["cpu"])


def run_job(
    breaker: Breaker, backend: str, steps: int, pulls: Schedule
) -> tuple[RankResult | None, list[ExecutedStep], str]:
    """Run one training while cables are pulled; return rank 0's result, the pulls, and the last line of an error."""
    lab = breaker.lab
    nics = [lab.topology.node_named(host) for host in HOSTS]
    with tempfile.TemporaryDirectory(prefix="openmrc-bench-") as folder:
        out, log = Path(folder, "result.json"), Path(folder, "log")
        processes = []
        with log.open("wb") as stderr:
            for rank, (host, nic) in enumerate(zip(HOSTS, nics, strict=True)):
                arguments = [
                    backend,
                    str(rank),
                    lab.management(nics[0]),
                    str(steps),
                    identity(0, nic),
                    str(out),
                ]
                command = [sys.executable, "-m", "bench.train.lab", "--rank", *arguments]
                extra = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_FAMILY": "AF_INET6"}
                processes.append(labs.start(lab.name, host, command, stderr=stderr, extra=extra))
        try:
            done = _pull_when_started(breaker, Path(f"{out}.started"), processes, pulls)
            codes = [process.wait(_SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
            breaker.clear()
        last_line = "" if not any(codes) else log.read_text(errors="replace").strip().splitlines()[-1]
        result = msgspec.json.decode(out.read_bytes(), type=RankResult) if out.exists() else None
        return result, done, last_line


def _pull_when_started(
    breaker: Breaker, started: Path, processes: list[subprocess.Popen[bytes]], pulls: Schedule
) -> list[ExecutedStep]:
    deadline = time.monotonic() + _SECONDS
    while not started.exists() and time.monotonic() < deadline:
        if any(process.poll() for process in processes):
            return []
        time.sleep(0.02)
    return breaker.run(pulls)


def schedule(breaker: Breaker, pulls: int, seed: int) -> Schedule:
    """Return pulls of random cables of the first host, at regular intervals."""
    rng = random.Random(seed)
    cables = [f"{each.lower.node}<>{each.upper.node}" for each in breaker.lab.cables if each.lower.node == HOSTS[0]]
    at = (BEFORE_S + number * EVERY_S for number in range(pulls))
    steps = [f"at: {moment:.2f}s, for: {OUT_S}s, down: {rng.choice(cables)}" for moment in at]
    return Schedule.parse("; ".join(steps), "pulls")


def line(backend: str, result: RankResult | None, done: list[ExecutedStep], error: str) -> str:
    """Return a row of the table."""
    if result is None or not done:
        return f"{backend:6} ended early: {error or 'no error message'}"
    ends = result.started + np.array(result.training.at)
    times = np.array(result.training.seconds) * 1e3
    begins = ends - times / 1e3
    pulled = [each.monotonic_ns / 1e9 for each in done]
    out = np.zeros(len(times), bool)
    for down, up in zip(pulled[::2], pulled[1::2], strict=True):
        out |= (begins < up) & (ends > down)
    before, after = ends < pulled[0], begins > pulled[-1]
    cells = "".join(f"{_cell(times[which]):>26}" for which in (before, out, after))
    return f"{backend:6}{cells}  {result.training.loss[-1]:.9f}  {result.training.retransmitted:>8,}  {error or 'none'}"


def series(result: RankResult, done: list[ExecutedStep], pulls: Schedule) -> dict[str, Any]:
    """Return every step and every pull of a run; seconds since the first step began."""
    pulled = [round(each.monotonic_ns / 1e9 - result.started, 3) for each in done]
    cables = [step.where for step in pulls.steps if not step.ends]
    return {
        "at": [round(at, 4) for at in result.training.at],
        "ms": [round(seconds * 1e3, 2) for seconds in result.training.seconds],
        "pulls": [
            {"down": down, "up": up, "cable": cable}
            for down, up, cable in zip(pulled[::2], pulled[1::2], cables, strict=True)
        ],
    }


def _cell(times: Any) -> str:
    return f"{np.median(times):.0f} / {times.max():.0f} ({len(times)})" if len(times) else "-"


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--rank"]:
        backend, rank, store, steps, address, out = sys.argv[2:]
        rank_main(backend, int(rank), f"[{store}]" if ":" in store else store, int(steps), address, out)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pulls", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--series", type=Path, help="write every step to this JSON file")
    options = parser.parse_args()
    os.environ.pop("MRC_PLANES", None)
    heads = "".join(f"{head:>26}" for head in ("before, ms", "a cable is out", "after"))
    with labs.held(FABRIC, NAME):
        pulls = schedule(Breaker(NAME), options.pulls, options.seed)
        print(f"{options.pulls} pulls of {OUT_S} s, every {EVERY_S} s; step times: median / longest (steps)")
        print(f"{'':6}{heads}  {'last loss':11}  {'retrans.':>8}  error")
        runs: dict[str, Any] = {}
        for backend in ("mrc", "gloo"):
            result, done, error = run_job(Breaker(NAME), backend, options.steps, pulls)
            print(line(backend, result, done, error), flush=True)
            if result is not None and done:
                runs[backend] = series(result, done, pulls)
    if options.series is not None:
        options.series.write_text(json.dumps({"date": datetime.now(UTC).date().isoformat(), "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
