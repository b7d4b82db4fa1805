"""Measure whether memory and descriptors stay flat during minutes of small all-reduces through torch.

Two ranks all-reduce 8 to 4,096 bytes, in turns synchronous, asynchronous and with futures: for the given time through
shared memory, then over the network. Mark: after the first fifth of the time a rank gains no descriptor, and less than
10 KiB of memory a second (the slope of a line through its resident sizes). The slope of the last half, and the memory
blocks that Python gained in it, show whether what is gained is kept by something or levels off.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from typing import NamedTuple

from bench.train.ranks import run

MARK_BYTES_PER_S = 10 << 10
_WARM_SHARE = 0.2  # of the time, before which caches and pools fill
_SAMPLE_SECONDS = 1.0
_TRANSPORTS = {"shared": ("shared memory", "1"), "network": ("network, 4 planes", "0")}  # and MRC_SHARED_MEMORY
_SIZES = (8, 64, 512, 4096)  # bytes


class Gain(NamedTuple):
    """What a rank gained."""

    calls: int
    bytes_per_s: float  # after the first fifth of the time
    last_bytes_per_s: float  # in the last half
    descriptors: int
    blocks: int  # of Python's memory, in the last half
    resident: int  # bytes at the end


def endure(rank: int, size: int, address: str, seconds: float, rate: float, shared: str) -> Gain:
    """Return what this rank gained."""
    import numpy as np
    import torch
    import torch.distributed as dist

    os.environ["MRC_SHARED_MEMORY"] = shared
    os.environ.setdefault("MRC_PLANES", "4")
    torch.set_num_threads(1)
    dist.init_process_group("mrc", init_method=f"tcp://{address}", rank=rank, world_size=size)
    tensors = [torch.ones(each // 4) for each in _SIZES]
    samples: list[tuple[float, int, int, int]] = []
    begun, calls, is_over = time.monotonic(), 0, torch.zeros(1)
    while not is_over.item():
        for tensor in tensors:
            dist.all_reduce(tensor)
            works = [dist.all_reduce(tensor, async_op=True) for _ in range(4)]
            works[0].get_future().then(lambda each: None)
            for work in works:
                work.wait()
            tensor.fill_(1)
        calls += 5 * len(tensors) + 1
        now = time.monotonic() - begun
        if now - (samples[-1][0] if samples else 0) >= _SAMPLE_SECONDS:
            samples.append((now, _resident(), len(os.listdir("/proc/self/fd")), sys.getallocatedblocks()))
        is_over.fill_(now >= seconds)
        dist.all_reduce(is_over, dist.ReduceOp.MAX)
        time.sleep(max(calls / rate - now, 0) if rate else 0)
    dist.destroy_process_group()
    settled = np.array([each for each in samples if each[0] >= _WARM_SHARE * seconds])
    last = settled[settled[:, 0] >= seconds / 2]
    slope, last_slope = (float(np.polyfit(each[:, 0], each[:, 1], 1)[0]) for each in (settled, last))
    _, _, descriptors, _ = settled[-1] - settled[0]
    return Gain(calls, slope, last_slope, int(descriptors), int(last[-1, 3] - last[0, 3]), int(settled[-1, 1]))


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def main() -> None:
    """Print a line per kind of transport."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each kind of transport")
    parser.add_argument("--rate", type=float, default=0.0, help="calls a second; 0: as many as possible")
    parser.add_argument("--transports", nargs="+", default=list(_TRANSPORTS), choices=_TRANSPORTS)
    options = parser.parse_args()
    for name, shared in (_TRANSPORTS[each] for each in options.transports):
        results = run(2, endure, options.seconds, options.rate, shared)
        slope, gained = max(each.bytes_per_s for each in results), max(each.descriptors for each in results)
        verdict = "ok" if slope <= MARK_BYTES_PER_S and gained <= 0 else "missed"
        print(
            f"{name}: {results[0].calls:,} calls in {options.seconds:.0f} s; {slope / 1024:+.2f} KiB a second at "
            f"{results[0].resident >> 20} MiB, {gained:+} descriptors: {verdict}; in the last half "
            f"{max(each.last_bytes_per_s for each in results) / 1024:+.2f} KiB a second and "
            f"{max(each.blocks for each in results):+,} blocks of Python's memory",
            flush=True,
        )


if __name__ == "__main__":
    main()
