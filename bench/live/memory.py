"""Does resident memory stay flat, and under 400 MB a side, while a large amount is sent?

Sends 10 GB (or --gigabytes) in 1 MiB writes between two processes, looking at both every half second.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from harness.live_peers import Task, receiver, run_pair, sender

LIMIT = 400e6  # bytes
FLAT = 20e6  # bytes of growth after the first tenth


class Watch:
    """Samples this process's resident memory until told to stop."""

    def __init__(self) -> None:
        self.samples: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.wait(0.5):
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
            self.samples.append(pages * 4096)

    def stop(self) -> list[int]:
        """Return the samples, bytes."""
        self._end.set()
        self._thread.join()
        return self.samples


class Watched:
    """A pipe whose last message carries the samples too."""

    def __init__(self, pipe: Pipe, answers: int) -> None:
        self._pipe, self._answers, self._watch = pipe, answers, Watch()

    def send(self, message: object) -> None:
        """Send; the last answer together with the samples."""
        self._answers -= 1
        self._pipe.send(message if self._answers else (message, self._watch.stop()))

    def recv(self) -> object:
        """Receive."""
        return self._pipe.recv()


def server(pipe: Pipe, task: Task) -> None:
    """Receive under watch."""
    receiver(Watched(pipe, 2), task)  # type: ignore[arg-type]


def client(pipe: Pipe, task: Task) -> None:
    """Send under watch."""
    sender(Watched(pipe, 1), task)  # type: ignore[arg-type]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    began = time.monotonic()
    (_, there), (sent, here) = run_pair(server, client, Task(total=int(asked.gigabytes * 1e9)))
    sides = {}
    for name, samples in (("sender", here), ("receiver", there)):
        settled = samples[len(samples) // 4 :]
        sides[name] = {"most_mb": max(samples) / 1e6, "growth_mb": (settled[-1] - settled[0]) / 1e6}
    worst = max(side["most_mb"] for side in sides.values())
    result = {
        "gigabytes": sent["bytes"] / 1e9,
        "seconds": time.monotonic() - began,
        **sides,
        "ratio": worst * 1e6 / LIMIT,
        "mark": 1.0,
        "flat": all(abs(side["growth_mb"]) * 1e6 < FLAT for side in sides.values()),
    }
    if asked.json:
        print(json.dumps(result))
        return
    for name, side in sides.items():
        print(f"{name}: at most {side['most_mb']:.0f} MB resident, grew by {side['growth_mb']:.1f} MB")
    print(
        f"{result['gigabytes']:.1f} GB sent; ratio to 400 MB: {result['ratio']:.2f} (mark: 1); flat: {result['flat']}"
    )


if __name__ == "__main__":
    main()
