"""`mrc collperf`: measure and verify collectives, with the flags and columns of nccl-tests."""

from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

import typer

from openmrc.base.amounts import size_bytes
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json
from openmrc.programs.training.collperf_run import CollperfJob, run
from openmrc.programs.training.measurement import CollperfCalls, CollperfSettings

_SIZE = "Bytes, such as 8, 64K or 32M"


@dataclass(frozen=True)
class CollperfSizes:
    """Which sizes are measured."""

    panel: ClassVar = "Sizes"
    least: Annotated[str, typer.Option("-b", "--minbytes", help=f"Smallest size. {_SIZE}.")] = "32M"
    most: Annotated[str | None, typer.Option("-e", "--maxbytes", help="Largest size (default: the smallest).")] = None
    step: Annotated[str, typer.Option("-i", "--stepbytes", help="Increment between sizes; 0: multiply by -f.")] = "0"
    factor: Annotated[int, typer.Option("-f", "--stepfactor", min=1, help="Factor between sizes.")] = 2

    def settings(self, collective: str, calls: CollperfCalls) -> CollperfSettings:
        """Return what is measured; ConfigError for a size that is none."""
        begin = size_bytes(self.least, "-b")
        return CollperfSettings(
            collective=collective,
            least=begin,
            most=size_bytes(self.most, "-e") if self.most is not None else begin,
            step=size_bytes(self.step, "-i"),
            factor=self.factor,
            **asdict(calls) | {"check": bool(calls.check)},
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
    run(ranks.job(sizes.settings(collective, calls)), ranks.ranks, as_json)
