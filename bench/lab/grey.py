"""Are faults named that data meets and small probes do not? `sudo python -m bench.lab.grey [FAULTS] [SEED]`.

The controller of `mrc map watch` (a dry run) on a lab of eight NICs and two planes at 20 Mb/s a port, under `mrc perf`
in both directions between four pairs of NICs. One direction of a cable is broken at a time, the kinds take turns:

above 1 KB   what is longer is dropped at the receiving port, by nftables
bit errors   1e-6: 3 % of packets of 4 KiB are dropped, 0.1 % of short ones
MTU 1500     the sending port takes no more, neither way, as veth does: the cable
data class   what is in the data class is dropped at the receiving port
slow port    a tenth of the rate, between switches

named     the direction, its cable or one of its switches within `LIMIT_S`; `exact`: the direction by its own name
wrong     verdicts about other parts while it lasts; `quiet` counts verdicts in the seconds between two faults
late      times that a host was called late
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.lab.agents import MRC
from harness import labs
from openmrc.base.faults import Schedule
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import MTU, CableEnd
from openmrc.lab.namespaces import namespace
from openmrc.lab.run import command_line, sockets_of
from openmrc.operations.control.controller import ControllerEvent, ControllerEventKind, FabricController
from openmrc.operations.control.controllers import lab_controller
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.fleets.lab_prober import hurry

NAME = "bench-grey"
FABRIC = """name: {name}
hosts: {{count: 8}}
planes:
  - {{count: 2, host_gbps: 0.02, t0: {{down: 4, up: 4}}, t1: {{}}}}
"""
PAIRS = (("h0", "h4"), ("h1", "h5"), ("h2", "h6"), ("h3", "h7"))
LIMIT_S, QUIET_S, SETTLE_S = 25.0, 2.0, 3.0
DROPS = {
    "above 1 KB": ["meta length > 1024 drop"],
    "bit errors": ["meta length > 1024 numgen random mod 1000 < 33 drop", "numgen random mod 1000 < 1 drop"],
    "data class": ["ip6 dscp { 4, 8 } drop"],
}
KINDS = [*DROPS, "MTU 1500", "slow port"]


class Grey:
    """Breaks one direction of a cable at a time."""

    def __init__(self, seed: int) -> None:
        self.breaker = Breaker(NAME)
        self.draw = random.Random(seed)
        lab = self.breaker.lab
        self._peers: dict[int, CableEnd] = {}
        for cable in lab.cables:
            self._peers |= {cable.lower.link: cable.upper, cable.upper.link: cable.lower}
        self._parts = [PlaneParts(lab.topology, shape) for shape in lab.topology.planes]
        self._ports = {port.link: port for port in lab.ports()}

    def direction(self, kind: str) -> int:
        """Draw a directed link; that of a slow port lies between switches."""
        lab = self.breaker.lab
        links = [
            link
            for link, port in self._ports.items()
            if kind != "slow port" or not (port.is_nic or self._peers[link].is_nic)
        ]
        return self.draw.choice([link for link in links if link < lab.topology.links])

    def name(self, link: int) -> str:
        return self.breaker.lab.topology.link_name(link)

    def cable(self, link: int) -> str:
        watch = next(each for each in self._parts if 0 <= link - each.shape.host_up < each.links)
        return watch.name(watch.links + int(watch.cable_of[link - watch.shape.host_up]))

    @contextmanager
    def broken(self, kind: str, link: int) -> Iterator[None]:
        """Have a direction broken."""
        here, there = self._ports[link], self._peers[link]
        try:
            if kind == "slow port":
                self.breaker.apply(Schedule.parse(f"rate: 2 Mb/s, on: {self.name(link)}").steps[0])
            elif kind == "MTU 1500":
                _in(here.node, "ip", "link", "set", here.interface, "mtu", "1500")
            else:
                rules = "\n".join(DROPS[kind])
                chain = f"type filter hook ingress device {there.interface} priority 0"
                _in(there.node, "nft", f"table netdev grey {{ chain c {{ {chain};\n{rules}\n}}\n}}")
            yield
        finally:
            if kind == "slow port":
                self.breaker.clear()
            elif kind == "MTU 1500":
                _in(here.node, "ip", "link", "set", here.interface, "mtu", str(MTU))
            else:
                _in(there.node, "nft", "delete table netdev grey")


def _in(node: str, *command: str) -> None:
    subprocess.run(["ip", "netns", "exec", namespace(NAME, node), *command], check=True)


@contextmanager
def load() -> Iterator[None]:
    """Run `mrc perf` in both directions between the pairs."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    extra = {"MRC_CTL": str(sockets_of(NAME))}
    started = [labs.start(NAME, server, [*MRC, "perf"], extra=extra, **silent) for _, server in PAIRS]
    try:
        for _, server in PAIRS:
            while not subprocess.check_output(command_line(NAME, server, ["ss", "-ltnH", "sport = :18515"])):
                time.sleep(0.1)
        for client, server in PAIRS:
            line = [*MRC, "perf", server, "-b", "-D", "3600"]
            started.append(labs.start(NAME, client, line, extra=extra, **silent))
        yield
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(20)


def stepped(controller: FabricController, seconds: float, part: str = "") -> Iterator[ControllerEvent]:
    """Yield what a controller says for a time, or until it has named one of the parts of a direction."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for event in controller.step(time.monotonic()):
            yield event
            if part and event.what == ControllerEventKind.NAMED and is_near(event.part, part):
                return


def is_near(said: str, part: str) -> bool:
    """Whether a part is this direction, its cable, or one of its switches."""
    ends = part.split(">")
    return said in (part, "<>".join(ends), "<>".join(reversed(ends)), *ends)


def forget(controller: FabricController) -> None:
    """Let nothing of what was broken be known any more."""
    for plane in controller.planes:
        for part in list(plane.faults):
            plane.forget(part)
        for counts in (plane.counts, plane.slow_ports.counts):
            counts.forget(np.arange(len(counts)))


def trial(grey: Grey, controller: FabricController, kind: str) -> dict[str, Any]:
    """Break a direction and see what is said."""
    link = grey.direction(kind)
    name, named = grey.name(link), ControllerEventKind.NAMED
    cable = grey.cable(link)
    for _ in stepped(controller, SETTLE_S):
        pass  # endpoints find losses for a while
    forget(controller)
    quiet = [event.part for event in stepped(controller, QUIET_S) if event.what == named]
    forget(controller)
    with grey.broken(kind, link):
        begun = time.monotonic()
        events = list(stepped(controller, LIMIT_S, name))
        took = time.monotonic() - begun
    said = [event for event in events if event.what == named]
    right = [event for event in said if is_near(event.part, name)]
    late = [event.part for event in events if event.what == ControllerEventKind.HOST_LATE]
    effects = [event.verdict.effect for event in right if event.verdict is not None]
    return {
        "kind": kind, "part": name, "s": round(took, 2) if right else None, "late": late, "quiet": quiet,
        "exact": bool(right) and right[0].part == (cable if kind == "MTU 1500" else name),
        "said": [event.part for event in right], "effects": effects,
        "wrong": [event.part for event in said if event not in right],
    }  # fmt: skip


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    found = []
    hurry()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "grey.yaml").write_text(FABRIC.format(name=NAME))
        stack.enter_context(labs.held(folder / "grey.yaml", NAME))
        grey = Grey(seed)
        stack.enter_context(load())
        controller = stack.enter_context(lab_controller(NAME))
        for _ in stepped(controller, SETTLE_S):
            pass
        for turn in range(count):
            found.append(trial(grey, controller, KINDS[turn % len(KINDS)]))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    for kind in KINDS:
        mine = [each for each in found if each["kind"] == kind]
        times = sorted(each["s"] for each in mine if each["s"] is not None)
        line = f"{kind:<11} named {len(times)} of {len(mine)}, exact {sum(each['exact'] for each in mine)}"
        print(line + (f"; median {statistics.median(times):.1f} s, largest {times[-1]:.1f} s" if times else ""))
    total = {key: sum(len(each[key]) for each in found) for key in ("wrong", "quiet", "late")}
    print(f"wrong {total['wrong']}, quiet {total['quiet']}, hosts called late {total['late']}")


if __name__ == "__main__":
    main()
