"""The program of one rank in a plan: its sends and receives, in order."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.collectives.choice import Collective, CollectiveAlgorithm, plan_for
from openmrc.collectives.plan import NOTHING, CollectivePlan, Space, Transfers


class Send(NamedTuple):
    block: int
    space: int
    is_stored: bool  # written directly to its final address; False: to the stage, for a reduction
    after: int  # arrival (`Receive.arrival`) that it depends on; NOTHING: none
    is_final: bool  # as of `Receive`


class Receive(NamedTuple):
    arrival: int  # index among all arrivals of this rank
    block: int
    space: int
    reduces: bool
    before: int  # arrival that is reduced into the same block before it; NOTHING: none
    completes: bool  # the block then holds the contributions of all ranks
    is_final: bool  # stored, and no transfer waits for a part of it: only its end is signalled


class RankProgram(NamedTuple):
    sends: dict[int, tuple[Send, ...]]  # by target
    receives: dict[int, tuple[Receive, ...]]  # by source
    arrivals: int
    peers: tuple[int, ...]  # ranks that it exchanges data with
    scratch: tuple[int, ...]  # blocks in SCRATCH that it uses


@lru_cache(maxsize=512)
def program_for(
    collective: Collective, algorithm: CollectiveAlgorithm, ranks: int, rank: int, root: int
) -> RankProgram:
    """Return the program of `rank` in a collective; cached."""
    return program(plan_for(collective, algorithm, ranks, root), rank)


def program(plan: CollectivePlan, rank: int) -> RankProgram:
    """Return the program of `rank` in a plan."""
    part = plan.transfers
    final = _final(part)
    arriving = np.flatnonzero(part.target == rank).tolist()
    number = {row: arrival for arrival, row in enumerate(arriving)}
    sends: dict[int, list[Send]] = {}
    for row in np.flatnonzero(part.source == rank).tolist():
        after = int(part.after[row])
        send = Send(
            int(part.read[row]),
            int(part.read_space[row]),
            not part.reduces[row],
            NOTHING if after == NOTHING else number[after],
            bool(final[row]),
        )
        sends.setdefault(int(part.target[row]), []).append(send)
    receives, scratch = _receives(plan, number, final)
    peers = sorted({*sends, *receives})
    return RankProgram(
        {target: tuple(each) for target, each in sends.items()},
        {source: tuple(each) for source, each in receives.items()},
        len(arriving),
        tuple(peers),
        scratch,
    )


def _final(part: Transfers) -> npt.NDArray[np.bool_]:
    """Return for each transfer whether it is stored and no other one waits for it."""
    final: npt.NDArray[np.bool_] = part.reduces == 0
    final[part.after[part.after != NOTHING]] = False
    return final


def _receives(
    plan: CollectivePlan, number: dict[int, int], final: npt.NDArray[np.bool_]
) -> tuple[dict[int, list[Receive]], tuple[int, ...]]:
    part = plan.transfers
    receives: dict[int, list[Receive]] = {}
    folded: dict[tuple[int, int], int] = {}  # the latest reduction into each block
    scratch: set[int] = set()
    for row, arrival in number.items():
        block, space, reduces = int(part.write[row]), int(part.write_space[row]), bool(part.reduces[row])
        before = folded.get((space, block), NOTHING) if reduces else NOTHING
        if reduces:
            folded[space, block] = arrival
        if space == Space.SCRATCH:
            scratch.add(block)
        receives.setdefault(int(part.source[row]), []).append(
            Receive(arrival, block, space, reduces, before, bool(part.completes[row]), bool(final[row]))
        )
    return receives, tuple(sorted(scratch))
