"""Measure whether memory and descriptors stay flat during minutes of small all-reduces through torch.

Two ranks all-reduce 8 to 4,096 bytes, in turns synchronous, asynchronous and with futures: for the given time through
shared memory, then over the network. Every ten seconds a rank collects garbage, lets the C library return its free
pages, and notes how much memory is resident: what is left is kept by something. Mark: after the first fifth of the time
a rank gains no descriptor and keeps less than 1 KiB more a second (the slope of a line through these sizes), also in
the last half. What was free and returned is shown beside.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import resource
import sys
import time
from typing import NamedTuple

from bench.train.ranks import run

MARK_BYTES_PER_S = 1 << 10
_WARM_SHARE = 0.2  # of the time, before which caches and pools fill
_SAMPLE_SECONDS = 10.0
_LIBC = ctypes.CDLL(None)
_TRANSPORTS = {"shared": ("shared memory", "1"), "network": ("network, 4 planes", "0")}  # and MRC_SHARED_MEMORY
_SIZES = (8, 64, 512, 4096)  # bytes


class Gain(NamedTuple):
    """What a rank gained."""

    calls: int
    bytes_per_s: float  # kept, after the first fifth of the time
    last_bytes_per_s: float  # in the last half
    descriptors: int
    blocks: int  # of Python's memory, in the last half
    resident: int  # bytes at the end
    free: int  # bytes that the C library and Python had free within ten seconds, at most


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
    samples: list[Sample] = []
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
        if now - (samples[-1].seconds if samples else 0) >= _SAMPLE_SECONDS:
            samples.append(_sample(now))
        is_over.fill_(now >= seconds)
        dist.all_reduce(is_over, dist.ReduceOp.MAX)
        time.sleep(max(calls / rate - now, 0) if rate else 0)
    dist.destroy_process_group()
    settled = [each for each in samples if each.seconds >= _WARM_SHARE * seconds]
    last = [each for each in settled if each.seconds >= seconds / 2]
    slope, last_slope = (
        float(np.polyfit([each.seconds for each in some], [each.kept for each in some], 1)[0])
        for some in (settled, last)
    )
    return Gain(
        calls,
        slope,
        last_slope,
        settled[-1].descriptors - settled[0].descriptors,
        last[-1].blocks - last[0].blocks,
        last[-1].kept,
        max(each.free for each in settled),
    )


class Sample(NamedTuple):
    """What a rank holds at one time."""

    seconds: float
    kept: int  # bytes resident after all that is free was returned
    free: int  # bytes that were returned
    descriptors: int
    blocks: int


def _sample(now: float) -> Sample:
    before = _resident()
    gc.collect()
    _LIBC.malloc_trim(0)
    kept = _resident()
    return Sample(now, kept, max(before - kept, 0), len(os.listdir("/proc/self/fd")), sys.getallocatedblocks())


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
        last = max(each.last_bytes_per_s for each in results)
        verdict = "ok" if max(slope, last) <= MARK_BYTES_PER_S and gained <= 0 else "missed"
        print(
            f"{name}: {results[0].calls:,} calls in {options.seconds:.0f} s; {slope / 1024:+.2f} KiB a second at "
            f"{results[0].resident >> 20} MiB, {gained:+} descriptors: {verdict}; in the last half "
            f"{last / 1024:+.2f} KiB a second and {max(each.blocks for each in results):+,} blocks of Python's memory; "
            f"free and returned every ten seconds: at most {max(each.free for each in results) >> 10:,} KiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
