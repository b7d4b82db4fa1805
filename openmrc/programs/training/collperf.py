"""`mrc collperf`: measure and verify collectives, with the flags and columns of nccl-tests."""

from __future__ import annotations

from typing import Annotated

import typer

from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import check_file
from openmrc.programs.training.collperf_options import (
    CollperfCalls,
    CollperfOutput,
    CollperfRanks,
    CollperfSizes,
)
from openmrc.programs.training.collperf_run import run


@with_groups
def collperf(
    collective: Annotated[
        str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, alltoall, broadcast, reduce or sendrecv.")
    ],
    sizes: CollperfSizes,
    calls: CollperfCalls,
    ranks: CollperfRanks,
    output: CollperfOutput,
) -> None:
    """Measure a collective between processes, started here or by torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    algbw is size / time, busbw is the rate on the links; #wrong is the number of wrong elements.
    """
    check_file(output.csv_file, "-F")
    check_file(output.json_file, "-J")
    job = ranks.job(calls.settings(collective, sizes))
    run(job, ranks.ranks, output.csv_file, output.json_file, output.as_json)
