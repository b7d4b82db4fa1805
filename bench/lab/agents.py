"""Are broken cables and T0s of a lab named through agents? `sudo python -m bench.lab.agents [REPETITIONS [SEED]]`.

Four hosts on two planes of two T0s and two T1s at 20 Mb/s a port, `mrc perf` in both directions between h0 and h3, an
agent in each host's namespace, a controller in h2 that names and denies nothing, TLS between them. Repetitions take
turns: a random cable between T0 and T1 loses all, or a random T0 does. Each waits until something is named, or
`LIMIT_S`, listens for `AFTER_S` more, so that longer windows are judged too, repairs it and waits for that to be seen.

right   the part was named first
beside  another part that shares a link with it was named first, such as one direction of the cable
none    nothing was named in time
once    repetitions in which the part was named, once, and no other that shares a link with it
wrong   verdicts about parts that share no link with it, in and between repetitions
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from harness import labs
from openmrc.base.faults import Schedule
from openmrc.fabric.model.naming import links_at
from openmrc.lab import lifetime, record, run
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab
from openmrc.lab.run import sockets_of
from openmrc.operations.fleets.agents.authority import make_certificates
from openmrc.operations.fleets.agents.certificates import CONTROLLER

NAME, HOSTS = "bench-agents", ("h0", "h1", "h2", "h3")
FABRIC = """
name: {name}
hosts: {{count: 4}}
planes:
  - count: 2
    host_gbps: 0.02
    t0: {{down: 2, up: 2, buffer_kb: 64}}
    t1: {{buffer_kb: 64}}
"""
MRC = [sys.executable, "-m", "openmrc.programs.main"]
READY_S, CALM_S, LIMIT_S, AFTER_S, REPAIR_S = 90.0, 3.0, 10.0, 9.0, 20.0


class Said:
    """The lines of the controller, as they come."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()
        self.lines: list[dict[str, Any]] = []

    def look(self) -> list[dict[str, Any]]:
        """Return the verdicts and repairs that are new."""
        new = [json.loads(line) for line in self._file]
        self.lines += new
        return [line for line in new if line["what"] == "repaired" or (line["what"] == "named" and line["verdict"])]

    def until(self, is_over: Callable[[dict[str, Any]], bool], seconds: float) -> list[dict[str, Any]]:
        """Return what is said until something, or for a time."""
        found, end = list[dict[str, Any]](), time.monotonic() + seconds
        while time.monotonic() < end:
            new = self.look()
            found += new
            if any(map(is_over, new)):
                break
            time.sleep(0.02)
        return found


@contextmanager
def started(lab: Lab, folder: Path) -> Iterator[Said]:
    """Run traffic, agents and the controller."""
    make_certificates(folder / "certs", NAME, [CONTROLLER, *HOSTS], 1)
    where, fabric, certs = f"{lab.management(2)}:18517", str(folder / "fabric.yaml"), ["--certs", str(folder / "certs")]
    sockets = str(sockets_of(NAME))
    with ExitStack() as stack, (folder / "said").open("wb") as said, (folder / "log").open("wb") as log:

        def start(node: str, *words: str, **files: Any) -> None:
            process = labs.start(NAME, node, [*MRC, *words], extra={"MRC_CTL": sockets}, **{"stderr": log, **files})
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)

        start("h3", "perf", stdout=log)
        show = run.command_line(NAME, "h3", ["ss", "-ltnH", "sport = :18515"])
        _await(lambda: bool(subprocess.run(show, capture_output=True, check=True).stdout))
        start("h0", "perf", "h3", "-b", "-D", "3600", stdout=log)
        start("h2", "map", "watch", fabric, "--listen", where, "--ctl", str(folder / "state"), *certs, "--json",
              stdout=said)  # fmt: skip
        for host in HOSTS:
            start(host, "map", "agent", fabric, host, "--controller", where, *certs, "--ctl", sockets, stdout=log)
        _await(lambda: b"watching" in (folder / "log").read_bytes())
        yield Said(folder / "said")


def place(turn: int, draw: random.Random) -> str:
    """Return a random cable, or a random T0 each other turn."""
    plane = draw.randrange(2)
    t0 = f"p{plane}-t0-0{draw.randrange(2)}"
    return t0 if turn % 2 else f"{t0}<>p{plane}-t1-0{draw.randrange(2)}"


def repetition(lab: Lab, breaker: Breaker, said: Said, part: str) -> dict[str, Any]:
    """Break a part and repair it; return what was said."""
    broken = set(links_at(lab.topology, part).tolist())

    def touches(line: dict[str, Any]) -> bool:
        return bool(broken & set(links_at(lab.topology, line["part"]).tolist()))

    before = said.until(lambda line: False, CALM_S)
    breaker.run(Schedule.parse(f"loss: 100%, on: {part}"))
    begun, load = time.monotonic(), os.getloadavg()[0]
    found = said.until(lambda line: line["what"] == "named", LIMIT_S)
    took = time.monotonic() - begun
    verdicts = [line for line in found if line["what"] == "named"]
    later = said.until(lambda line: False, AFTER_S) if verdicts else []
    breaker.clear()
    touching = [line["part"] for line in (*verdicts, *later) if line["what"] == "named" and touches(line)]
    mine = set(touching)
    repaired = said.until(lambda line: line["what"] == "repaired" and line["part"] in mine, REPAIR_S) if mine else []
    wrong = [line for line in (*before, *found, *later, *repaired) if line["what"] == "named" and not touches(line)]
    first = verdicts[0]["part"] if verdicts else ""
    outcome = "none" if not first else "right" if first == part else "beside" if touches(verdicts[0]) else "wrong first"
    return {"part": part, "outcome": outcome, "named": touching, "seconds": round(took, 2), "load": round(load, 1),
            "wrong": [_told(line) for line in wrong]}  # fmt: skip


def _told(line: dict[str, Any]) -> dict[str, Any]:
    return {"part": line["part"], **{name: line["verdict"][name] for name in ("lost", "sent", "rate", "window_ps")}}


def _await(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("the lab's programs did not start in time")
        time.sleep(0.1)


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    draw = random.Random(sys.argv[2] if len(sys.argv) > 2 else 1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "fabric.yaml").write_text(FABRIC.format(name=NAME))
        lifetime.up(folder / "fabric.yaml")
        try:
            lab, breaker = record.plan(NAME, record.read(NAME)), Breaker(NAME)
            rows = []
            with started(lab, folder) as said:
                for turn in range(repetitions):
                    rows.append(repetition(lab, breaker, said, place(turn, draw)))
                    print(json.dumps(rows[-1]), flush=True)
                late = sum(line["what"] == "host late" for line in said.lines)
        finally:
            lifetime.down(NAME)
    times = [row["seconds"] for row in rows if row["outcome"] != "none"]
    print(json.dumps({
        "repetitions": len(rows), **{each: sum(row["outcome"] == each for row in rows)
                                     for each in ("right", "beside", "wrong first", "none")},
        "once": sum(row["named"] == [row["part"]] for row in rows),
        "wrong": sum(len(row["wrong"]) for row in rows), "host_late": late,
        "seconds_median": statistics.median(times) if times else None, "seconds_largest": max(times, default=None),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
