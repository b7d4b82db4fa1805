"""How much memory does a rank take beyond torch, with four ranks that all-reduce 64 MiB?

Mark: 150 MB. The resident size before and after, both with torch loaded and the array made.
"""

from __future__ import annotations

import resource

from bench.train.ranks import run

MARK = 150e6


def beyond(rank: int, size: int, address: str) -> float:
    """Return the bytes that the group has added to the resident size of this rank."""
    import numpy as np
    import torch

    array = torch.ones(16 << 20).numpy()
    before = _resident()
    from openmrc.train.group import Group

    with Group.rendezvous(rank, size, address, planes="4", timeout=60) as group:
        for _ in range(5):
            group.all_reduce(array)
            group.all_to_all(np.zeros_like(array), array)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before - array.nbytes  # the second array
    return used


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def main() -> None:
    """Print the largest of the ranks."""
    most = max(run(4, beyond))
    verdict = "ok" if most <= MARK else "missed"
    print(f"4 ranks: {most / 1e6:.0f} MB a rank beyond torch, mark {MARK / 1e6:.0f} MB: {verdict}")


if __name__ == "__main__":
    main()
