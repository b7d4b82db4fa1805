"""Measure the memory of a rank beyond torch's, with four ranks that all-reduce 64 MiB.

Compares the resident size before and after, with torch loaded and the array allocated in both cases. Part of it are
pages of libraries, mostly LLVM's, which exist once for all ranks of a machine. Mark: 150 MB, shared pages included.
"""

from __future__ import annotations

import resource

from bench.train.ranks import run
from openmrc.core.host_memory import peak_bytes

MARK = 150e6


def added_memory(rank: int, size: int, address: str) -> tuple[float, float]:
    """Return the bytes that the group adds to the peak resident size of this rank, and to its pages of libraries."""
    import numpy as np
    import torch

    array = torch.ones(16 << 20).numpy()
    before, libraries = _resident(), _of_files()
    from openmrc.train.group import Group

    with Group.rendezvous(rank, size, address, planes="4", timeout=60) as group:
        for _ in range(5):
            group.all_reduce(array)
            group.all_to_all(np.zeros_like(array), array)
        peak = peak_bytes()
        shared = _of_files() - libraries
    return peak - before - array.nbytes, shared  # without the output of all_to_all


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def _of_files() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[2]) * resource.getpagesize()


def main() -> None:
    """Print the memory of the largest rank."""
    largest, shared = max(run(4, added_memory))
    verdict = "ok" if largest <= MARK else "missed"
    print(
        f"4 ranks: {largest / 1e6:.0f} MB per rank beyond torch, of which {shared / 1e6:.0f} MB are pages of libraries "
        f"that the ranks share; mark {MARK / 1e6:.0f} MB: {verdict}"
    )


if __name__ == "__main__":
    main()
