"""Random schedules over real sockets with faults, forks, signals, forged packets and TCP strangers at once.

    python -m bench.live.soak [--runs 1000] [--seed 1]

Each run joins two endpoints on loopback, draws faults for both from its seed, and has both write random pieces of
memory into the other while: a timer's signal raises an exception in the main thread at any step, children are forked
that try to use what they inherit, a stranger sends garbage and forged feedback in the peer's name, and TCP peers
connect, reset, stay silent or talk nonsense. A run fails if a write fails, a wait does not end, a child does not get
ClosedError, or one byte of either memory is not what was written. A run that hangs ends the program with the stacks of
all threads. Mark: 1,000 runs without a failure.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from harness import strangers
from harness.forger import FEEDBACK, Forger, feedback, outside_window
from harness.live_pair import SMALL, Pair, joined
from openmrc.verbs import ClosedError, ConnectionOptions, QpState

SIZE = 1 << 17  # bytes of either memory; each end writes one half of the other's
LONGEST = 120  # s of a run before it counts as hanging
PATIENCE = 60.0  # s of one wait
OPTIONS = ConnectionOptions(
    mpr=4, max_wimm=16, max_recv_wr=16, max_send_wr=64, timeout=12, linear_count=7, user_timeout=math.inf
)


class SignalError(Exception):
    """What the timer's signal raises, at any step of the main thread."""


class Interrupter:
    """A timer whose signal raises in the main thread, again and again, while it may."""

    def __init__(self, rng: random.Random) -> None:
        self.may = False
        self._rng = rng

    def __enter__(self) -> Interrupter:
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        signal.setitimer(signal.ITIMER_REAL, self._rng.uniform(0.001, 0.1))
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _interrupt(self, number: int, frame: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._rng.uniform(0.02, 0.2))
        if self.may:
            self.may = False
            raise SignalError

    def fork(self) -> int:
        """Fork; an exception in Python's own fork handlers would only be printed."""
        self.may = False
        child = os.fork()
        self.may = child != 0
        return child


class Run:
    """One schedule."""

    def __init__(self, seed: int, done: Counter[str]) -> None:
        self.rng = random.Random(seed)
        self.done = done
        self.planes = self.rng.randint(1, 4)
        self.interrupter = Interrupter(random.Random(seed))

    def go(self) -> None:
        """Raise if anything is not as it should be."""
        attr = replace(SMALL, max_send_wr=64)
        with joined(
            planes=self.planes, attr=attr, size=SIZE, faults=faults(self.rng, self.planes), options=OPTIONS
        ) as pair:
            pair.contexts[0].impair(faults(self.rng, self.planes))
            with troubled(pair, self.rng, self.done), self.interrupter:
                for _ in range(self.rng.randint(5, 25)):
                    piece = self._draw()
                    self._with_interruptions(partial(self._write, pair, *piece))
                    if self.rng.random() < 0.1:
                        self._with_interruptions(partial(fork, pair, self.interrupter, self.done))
            for end in pair.ends:
                end.qp.drain(PATIENCE)
            check(pair)

    def _draw(self) -> tuple[int, int, bytes]:
        """Return which end writes, where in its half, and what."""
        side, half = self.rng.randrange(2), SIZE // 2
        begin = self.rng.randrange(half)
        length = min(self.rng.choice((1, 64, 4096, 30_000, half)), half - begin)
        return side, begin + side * half, self.rng.randbytes(length)

    def _write(self, pair: Pair, side: int, begin: int, content: bytes) -> None:
        """Change a piece of one end's memory and write it to the other; doing it twice does no harm."""
        region, end, after = pair.regions[side], pair.ends[side], begin + len(content)
        end.qp.drain(PATIENCE)  # a write that was interrupted may be on its way: its memory must not change
        region.bytes[begin:after] = np.frombuffer(content, np.uint8)
        target = end.remote.regions[0]
        end.qp.post_write(region[begin:after], target.addr + begin, target.r_key)
        end.qp.drain(PATIENCE)
        for completion in end.send_cq.poll(64):
            if not completion.ok:
                raise RuntimeError(completion.error)
        self.done["writes"] += 1
        self.done["bytes"] += len(content)

    def _with_interruptions(self, work: Callable[[], None]) -> None:
        """Do it again until no signal cuts it short."""
        while True:
            try:
                self.interrupter.may = True
                work()
                self.interrupter.may = False
                return
            except SignalError:
                self.done["signals"] += 1


def faults(rng: random.Random, planes: int) -> str:
    """Return a schedule of some seconds: shares of packets in trouble, and planes that flap."""
    words = ("loss", "duplicate", "reorder", "trim", "corruption")
    steps = [f"{rng.choice(words)}: {rng.uniform(0.1, 8):.1f}%" for _ in range(rng.randint(0, 3))]
    steps += [f"delay: {rng.uniform(0, 2):.2f}ms, on: plane {rng.randrange(planes)}"] if rng.random() < 0.3 else []
    for _ in range(rng.randint(0, 3)):
        at, lasts, plane = rng.uniform(0, 0.3), rng.uniform(0.005, 0.08), rng.randrange(planes)
        steps.append(f"at: {at * 1e3:.0f}ms, for: {lasts * 1e3:.0f}ms, down: plane {plane}")
    return "; ".join(steps) or "loss: 0.1%"


@contextmanager
def troubled(pair: Pair, rng: random.Random, done: Counter[str]) -> Iterator[None]:
    """Have strangers at both the UDP and the TCP side."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=trouble, args=(stop, random.Random(rng.random()), done), daemon=True)
        for trouble in (lambda *args: forge(pair, *args), lambda *args: call(pair.port, *args))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)


def forge(pair: Pair, stop: threading.Event, rng: random.Random, done: Counter[str]) -> None:
    """Send garbage and forged feedback to the second endpoint in the first one's name."""
    forger = Forger(*pair.contexts)
    qpn, psn = pair.ends[1].qp.qpn, pair.ends[1].qp.query()[0].sq_psn or 0
    while not stop.wait(rng.uniform(0, 0.004)):
        if rng.random() < 0.3:
            forger.send_bytes(rng.randbytes(rng.randrange(1, 200)))
        else:
            forger.send(feedback(rng.choice(FEEDBACK), qpn, outside_window(psn)))
        done["forged"] += 1


def call(port: int, stop: threading.Event, rng: random.Random, done: Counter[str]) -> None:
    """Be TCP peers that do not play by the rules."""
    while not stop.wait(rng.uniform(0, 0.05)):
        match rng.randrange(4):
            case 0:
                strangers.reset(port)
            case 1:
                strangers.vanish(port)
            case 2:
                strangers.say(port, rng.randbytes(rng.randrange(2000)))
            case _:
                with strangers.silent(port, 2):
                    stop.wait(rng.uniform(0, 0.05))
        done["strangers"] += 1


def fork(pair: Pair, interrupter: Interrupter, done: Counter[str]) -> None:
    """Fork a child that tries to write; it must be refused, and soon."""
    child = interrupter.fork()
    if child == 0:
        os._exit(_refused(pair))
    until = time.monotonic() + 20
    while True:
        try:
            ended, status = os.waitpid(child, os.WNOHANG)
        except SignalError:
            continue
        if ended:
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            raise TimeoutError("the child of a fork hangs")
        time.sleep(0.001)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"the child of a fork could write (status {status})")
    done["forks"] += 1


def _refused(pair: Pair) -> int:
    try:
        target = pair.ends[0].remote.regions[0]
        pair.ends[0].qp.post_write(pair.regions[0][:8], target.addr, target.r_key)
    except ClosedError:
        return 0
    except BaseException:
        return 2
    return 1


def check(pair: Pair) -> None:
    """Compare both memories: each half was written by one side only."""
    if [end.qp.state for end in pair.ends] != [QpState.RTS] * 2:
        raise RuntimeError("a queue pair is not in RTS")
    first, second = (np.asarray(region.bytes) for region in pair.regions)
    wrong = np.flatnonzero(first != second)
    if len(wrong):
        raise RuntimeError(f"{len(wrong)} bytes lost or misplaced, the first at {wrong[0]}")


def main() -> int:
    """Run, print, and return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    done: Counter[str] = Counter()
    failures, began = [], time.monotonic()
    for seed in range(asked.seed, asked.seed + asked.runs):
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        try:
            Run(seed, done).go()
        except Exception as error:
            failures.append({"seed": seed, "error": f"{type(error).__name__}: {error}"})
            print(failures[-1], file=sys.stderr)
        if (seed - asked.seed) % 50 == 49:
            print(f"{seed - asked.seed + 1} runs, {len(failures)} failed", file=sys.stderr)
    faulthandler.cancel_dump_traceback_later()
    summary = {"runs": asked.runs, "failed": failures, "seconds": round(time.monotonic() - began, 1), **done}
    print(json.dumps(summary) if asked.json else ", ".join(f"{name} {value}" for name, value in summary.items()))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
