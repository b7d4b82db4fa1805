"""`mrc collperf`: measure and verify collectives, with the flags and columns of nccl-tests."""

from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

import typer

from openmrc.base.amounts import size_bytes
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json
from openmrc.programs.training.collperf_run import CollperfJob, run
from openmrc.programs.training.measurement import CollperfSettings

_SIZE = "Bytes, such as 8, 64K or 32M"


@dataclass(frozen=True)
class CollperfSizes:
    """Which sizes are measured."""

    panel: ClassVar = "Sizes"
    least: Annotated[str, typer.Option("-b", "--minbytes", help=f"Smallest size. {_SIZE}.")] = "32M"
    most: Annotated[str | None, typer.Option("-e", "--maxbytes", help="Largest size (default: the smallest).")] = None
    step: Annotated[str, typer.Option("-i", "--stepbytes", help="Increment between sizes; 0: multiply by -f.")] = "0"
    factor: Annotated[int, typer.Option("-f", "--stepfactor", min=1, help="Factor between sizes.")] = 2


@dataclass(frozen=True)
class CollperfCalls:
    """What is called, how often, and which time counts."""

    panel: ClassVar = "Calls"
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Measured calls per size.")] = 20
    warmup: Annotated[int, typer.Option("-w", "--warmup_iters", min=0, help="Warm-up calls.")] = 1
    aggregated: Annotated[int, typer.Option("-m", "--agg_iters", min=1, help="Calls in flight before waiting.")] = 1
    check: Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="1: verify results.")] = 1
    op: Annotated[str, typer.Option("-o", "--op", help="sum, prod, min, max, avg.")] = "sum"
    dtype: Annotated[str, typer.Option("-d", "--datatype", help="float, double, half, bfloat16, int8, ...")] = "float"
    root: Annotated[int, typer.Option("-r", "--root", min=0, help="Root rank of broadcast and reduce.")] = 0
    average: Annotated[
        int,
        typer.Option(
            "-a", "--average", min=0, max=3, help="Time of the ranks: 0 rank 0, 1 average, 2 minimum, 3 maximum."
        ),
    ] = 1

    def settings(self, collective: str, sizes: CollperfSizes) -> CollperfSettings:
        """Return what is measured; ConfigError for a size that is none."""
        begin = size_bytes(sizes.least, "-b")
        return CollperfSettings(
            collective=collective,
            least=begin,
            most=size_bytes(sizes.most, "-e") if sizes.most is not None else begin,
            step=size_bytes(sizes.step, "-i"),
            factor=sizes.factor,
            **asdict(self) | {"check": bool(self.check)},
        )


@dataclass(frozen=True)
class CollperfRanks:
    """The processes, and what connects them."""

    panel: ClassVar = "Ranks and network"
    ranks: Annotated[int, typer.Option("--ranks", min=1, max=64, help="Processes to start here.")] = 2
    planes: Annotated[str, typer.Option("--planes", help="Number of loopback planes, or addresses.")] = "4"
    impair: Annotated[
        str | None, typer.Option("--impair", metavar="WORDS", help='Impairments at each rank: "loss: 1%".')
    ] = None
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds allowed per collective.")] = 60.0

    def job(self, settings: CollperfSettings) -> CollperfJob:
        """Return the parameters that all ranks share."""
        return CollperfJob(settings=settings, planes=self.planes, impair=self.impair, timeout=self.timeout)


@with_groups
def collperf(
    collective: Annotated[
        str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, alltoall, broadcast, reduce or sendrecv.")
    ],
    sizes: CollperfSizes,
    calls: CollperfCalls,
    ranks: CollperfRanks,
    as_json: Json = False,
) -> None:
    """Measure a collective between processes, started here or by torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    algbw is size / time, busbw is the rate on the links; #wrong is the number of wrong elements.
    """
    run(ranks.job(calls.settings(collective, sizes)), ranks.ranks, as_json)
