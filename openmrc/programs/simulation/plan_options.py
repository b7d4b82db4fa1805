"""The options of `mrc plan` and `mrc plan job`, in groups: each is a dataclass, and a panel of the help."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from openmrc.base.amounts import gbps_of
from openmrc.planner.compare import Wish
from openmrc.planner.policy import Policy


@dataclass(frozen=True)
class PlannedDesign:
    """The size of the fabric, and the parts that it is made of."""

    panel: ClassVar = "Design"
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="NICs to connect; one NIC per GPU.")] = 131072
    nic: Annotated[str, typer.Option("--nic", help="Rate per NIC, such as 800G.")] = "800G"
    planes: Annotated[int, typer.Option("--planes", min=1, help="Planes; a NIC has one port in each.")] = 8
    switch: Annotated[str, typer.Option("--switch", help="Capacity per switch, such as 51.2T.")] = "51.2T"
    rails: Annotated[
        int | None,
        typer.Option(min=1, help="NICs per machine in the rail-optimised design; 8, or fewer if that divides."),
    ] = None
    oversubscription: Annotated[
        float, typer.Option(min=1, help="Largest ratio of capacity down : up at T0, for every design.")
    ] = 1
    parts: Annotated[Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.")] = None


@dataclass(frozen=True)
class PlanLimits:
    """What a design must keep to."""

    panel: ClassVar = "Search"
    cheapest: Annotated[bool, typer.Option("--cheapest", help="Search all designs that the parts allow.")] = False
    max_hops: Annotated[int | None, typer.Option(help="Largest number of switches on a path.")] = None
    max_loss: Annotated[float | None, typer.Option(help="Largest loss of a NIC by one link, in percent.")] = None
    max_watts: Annotated[float | None, typer.Option(help="Largest power.")] = None
    max_cost: Annotated[float | None, typer.Option(help="Largest cost.")] = None
    min_paths: Annotated[int | None, typer.Option(help="Smallest number of paths between two NICs.")] = None

    def wish(self, design: PlannedDesign) -> Wish:
        """Return what is searched for."""
        limits = (self.max_hops, self.max_loss, self.max_watts, self.max_cost, self.min_paths)
        return Wish(design.gpus, gbps_of(design.nic), *limits, design.oversubscription)


@dataclass(frozen=True)
class PlanOutput:
    panel: ClassVar = "Output"
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the first design, or --design, to this fabric.yaml.")
    ] = None
    chosen: Annotated[str | None, typer.Option("--design", help="Name of the design that --out writes.")] = None
    nics_per_host: Annotated[int, typer.Option(min=1, help="NICs per machine in the file of --out.")] = 1
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the designs as this SVG file.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False


@dataclass(frozen=True)
class JobNetwork:
    """The networks that are compared, and their size."""

    panel: ClassVar = "Network"
    gpus: Annotated[int, typer.Option("--gpus", help="NICs of the job; one NIC per GPU.")] = 100_000
    nic: Annotated[str, typer.Option("--nic", help="Rate per NIC, such as 800G.")] = "800G"
    planes: Annotated[int, typer.Option("--planes", help="Planes of MRC and UET.")] = 8
    switch: Annotated[str, typer.Option("--switch", help="Capacity per switch, such as 51.2T.")] = "51.2T"
    parts: Annotated[Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.")] = None
    responses: Annotated[
        Path | None,
        typer.Option(
            "--responses", help="What failures cost, measured for NICs of this rate; the built-in table: 800G."
        ),
    ] = None
    networks: Annotated[str, typer.Option(help="Networks to compare, the one of interest first.")] = (
        "mrc,roce,roce_adaptive,roce_dual,uet"
    )


@dataclass(frozen=True)
class JobCourse:
    """The job, and how often it is simulated."""

    panel: ClassVar = "Job"
    model: Annotated[Literal["dense", "moe"], typer.Option(help="What the job exchanges.")] = "dense"
    trace: Annotated[
        Path | None,
        typer.Option(help="What a step of this trace exchanges, instead of --model: Chakra, GOAL or SimAI text."),
    ] = None
    ranks_per_nic: Annotated[int, typer.Option(min=1, help="Ranks of the --trace that share a NIC.")] = 1
    layers: Annotated[int, typer.Option(min=0, help="Only the first N layers of a SimAI --trace; 0: all.")] = 0
    days: Annotated[float, typer.Option(help="Length of the job.")] = 30
    jobs: Annotated[int, typer.Option(help="Number of jobs to simulate.")] = 100
    seed: Annotated[int, typer.Option(min=0, max=(1 << 32) - 1, help="Seed; the same seed gives the same numbers.")] = 1
    threads: Annotated[int, typer.Option(min=1, help="Threads; the numbers do not depend on it.")] = 1
    on: Annotated[
        Literal["threads", "ray"], typer.Option(help="Run on this machine, or each forecast on a Ray cluster.")
    ] = "threads"
    infant: Annotated[float, typer.Option(help="How much more often parts fail at first, fading in a week.")] = 0


@dataclass(frozen=True)
class JobPolicy:
    """What is done about failures; times in seconds."""

    panel: ClassVar = "Policy"
    detect_s: Annotated[float, typer.Option(help="Until a host's failure stops the job.")] = Policy.detect_s
    diagnose_s: Annotated[float, typer.Option(help="Until the failed host is known.")] = Policy.diagnose_s
    restart_s: Annotated[float, typer.Option(help="From then until steps continue.")] = Policy.restart_s
    checkpoint_s: Annotated[float, typer.Option(help="Time between two checkpoints, at least --lag-s.")] = (
        Policy.checkpoint_s
    )
    pause_s: Annotated[float, typer.Option(help="That the job waits for a checkpoint.")] = Policy.pause_s
    lag_s: Annotated[float, typer.Option(help="Until a checkpoint can be restored.")] = Policy.lag_s
    patience_s: Annotated[float, typer.Option(help="Longest outage that RoCE's retries survive.")] = Policy.patience_s
    reroute_s: Annotated[float, typer.Option(help="Until routing avoids a dead link; not MRC.")] = Policy.reroute_s
    remap_s: Annotated[float, typer.Option(help="Until an MRC NIC stops using a dead port.")] = Policy.remap_s
    isolate_s: Annotated[float, typer.Option(help="Until a bad link above T0 is shut.")] = Policy.isolate_s
    spares: Annotated[float, typer.Option(help="Spare hosts, as a share of the job's.")] = Policy.spares
    swap: Annotated[bool, typer.Option(help="Replace degraded hosts at every stop.")] = Policy.swap
    evict: Annotated[bool, typer.Option(help="And at a checkpoint, when it pays.")] = Policy.evict
    most_lost: Annotated[int, typer.Option(help="Planes that a NIC may lose before it is replaced.")] = Policy.most_lost
    drain: Annotated[bool, typer.Option(help="Move traffic away before maintenance.")] = Policy.drain

    def policy(self) -> Policy:
        return Policy(**asdict(self), failover_s=self.reroute_s)


@dataclass(frozen=True)
class JobOutput:
    """How much is asked, and where the answer goes."""

    panel: ClassVar = "Output"
    deep: Annotated[
        bool, typer.Option("--deep", help="Add break-even values, sensitivity and the best policies; minutes.")
    ] = False
    out: Annotated[Path | None, typer.Option("--out", help="Folder for report.html, job.json, network.svg.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
