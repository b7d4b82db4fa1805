"""The options of `mrc plan` and `mrc plan job`, in groups: each is a dataclass, and a panel of the help."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from openmrc.base.amounts import gbps_of
from openmrc.planner.compare import Wish
from openmrc.planner.month.policy import Policy

DESIGN, LIMITS, RESULTS = "Design", "Search", "Output"  # panels of the help
NETWORK, COURSE, POLICY = "Network", "Job", "Policy"


@dataclass(frozen=True)
class PlannedDesign:
    """The size of the fabric, and the parts that it is made of."""

    gpus: Annotated[
        int, typer.Option("--gpus", min=1, help="NICs to connect; one NIC per GPU.", rich_help_panel=DESIGN)
    ] = 131072
    nic: Annotated[str, typer.Option("--nic", help="Rate per NIC, such as 800G.", rich_help_panel=DESIGN)] = "800G"
    planes: Annotated[
        int, typer.Option("--planes", min=1, help="Planes; a NIC has one port in each.", rich_help_panel=DESIGN)
    ] = 8
    switch: Annotated[
        str, typer.Option("--switch", help="Capacity per switch, such as 51.2T.", rich_help_panel=DESIGN)
    ] = "51.2T"
    rails: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="NICs per machine in the rail-optimised design; 8, or fewer if that divides.",
            rich_help_panel=DESIGN,
        ),
    ] = None
    oversubscription: Annotated[
        float,
        typer.Option(
            min=1, help="Largest ratio of capacity down : up at T0, for every design.", rich_help_panel=DESIGN
        ),
    ] = 1
    parts: Annotated[
        Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.", rich_help_panel=DESIGN)
    ] = None


@dataclass(frozen=True)
class PlanLimits:
    """What a design must keep to."""

    cheapest: Annotated[
        bool, typer.Option("--cheapest", help="Search all designs that the parts allow.", rich_help_panel=LIMITS)
    ] = False
    max_hops: Annotated[
        int | None, typer.Option(help="Largest number of switches on a path.", rich_help_panel=LIMITS)
    ] = None
    max_loss: Annotated[
        float | None, typer.Option(help="Largest loss of a NIC by one link, in percent.", rich_help_panel=LIMITS)
    ] = None
    max_watts: Annotated[float | None, typer.Option(help="Largest power.", rich_help_panel=LIMITS)] = None
    max_cost: Annotated[float | None, typer.Option(help="Largest cost.", rich_help_panel=LIMITS)] = None
    min_paths: Annotated[
        int | None, typer.Option(help="Smallest number of paths between two NICs.", rich_help_panel=LIMITS)
    ] = None

    def wish(self, design: PlannedDesign) -> Wish:
        """Return what is searched for."""
        return Wish(
            design.gpus,
            gbps_of(design.nic),
            self.max_hops,
            self.max_loss,
            self.max_watts,
            self.max_cost,
            self.min_paths,
            design.oversubscription,
        )


@dataclass(frozen=True)
class PlanOutput:
    """Where the designs go."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the first design, or --design, to this fabric.yaml.", rich_help_panel=RESULTS
        ),
    ] = None
    chosen: Annotated[
        str | None, typer.Option("--design", help="Name of the design that --out writes.", rich_help_panel=RESULTS)
    ] = None
    nics_per_host: Annotated[
        int, typer.Option(min=1, help="NICs per machine in the file of --out.", rich_help_panel=RESULTS)
    ] = 1
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the designs as this SVG file.", rich_help_panel=RESULTS)
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=RESULTS)] = False


@dataclass(frozen=True)
class JobNetwork:
    """The networks that are compared, and their size."""

    gpus: Annotated[int, typer.Option("--gpus", help="NICs of the job; one NIC per GPU.", rich_help_panel=NETWORK)] = (
        100_000
    )
    nic: Annotated[str, typer.Option("--nic", help="Rate per NIC, such as 800G.", rich_help_panel=NETWORK)] = "800G"
    planes: Annotated[int, typer.Option("--planes", help="Planes of MRC and UET.", rich_help_panel=NETWORK)] = 8
    switch: Annotated[
        str, typer.Option("--switch", help="Capacity per switch, such as 51.2T.", rich_help_panel=NETWORK)
    ] = "51.2T"
    parts: Annotated[
        Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.", rich_help_panel=NETWORK)
    ] = None
    responses: Annotated[
        Path | None,
        typer.Option(
            "--responses",
            help="What failures cost, measured for NICs of this rate; the built-in table: 800G.",
            rich_help_panel=NETWORK,
        ),
    ] = None
    networks: Annotated[
        str, typer.Option(help="Networks to compare, the one of interest first.", rich_help_panel=NETWORK)
    ] = "mrc,roce,roce_adaptive,roce_dual,uet"


@dataclass(frozen=True)
class JobCourse:
    """The job, and how often it is simulated."""

    model: Annotated[Literal["dense", "moe"], typer.Option(help="What the job exchanges.", rich_help_panel=COURSE)] = (
        "dense"
    )
    trace: Annotated[
        Path | None,
        typer.Option(
            help="What a step of this trace exchanges, instead of --model: Chakra, GOAL or SimAI text.",
            rich_help_panel=COURSE,
        ),
    ] = None
    ranks_per_nic: Annotated[
        int, typer.Option(min=1, help="Ranks of the --trace that share a NIC.", rich_help_panel=COURSE)
    ] = 1
    layers: Annotated[
        int, typer.Option(min=0, help="Only the first N layers of a SimAI --trace; 0: all.", rich_help_panel=COURSE)
    ] = 0
    days: Annotated[float, typer.Option(help="Length of the job.", rich_help_panel=COURSE)] = 30
    jobs: Annotated[int, typer.Option(help="Number of jobs to simulate.", rich_help_panel=COURSE)] = 100
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=(1 << 32) - 1, help="Seed; the same seed gives the same numbers.", rich_help_panel=COURSE
        ),
    ] = 1
    threads: Annotated[
        int, typer.Option(min=1, help="Threads; the numbers do not depend on it.", rich_help_panel=COURSE)
    ] = 1
    on: Annotated[
        Literal["threads", "ray"],
        typer.Option(help="Run on this machine, or each forecast on a Ray cluster.", rich_help_panel=COURSE),
    ] = "threads"
    infant: Annotated[
        float,
        typer.Option(help="How much more often parts fail at first, fading in a week.", rich_help_panel=COURSE),
    ] = 0


@dataclass(frozen=True)
class JobPolicy:
    """What is done about failures; times in seconds."""

    detect_s: Annotated[float, typer.Option(help="Until a host's failure stops the job.", rich_help_panel=POLICY)] = 30
    diagnose_s: Annotated[float, typer.Option(help="Until the failed host is known.", rich_help_panel=POLICY)] = 120
    restart_s: Annotated[float, typer.Option(help="From then until steps continue.", rich_help_panel=POLICY)] = 180
    checkpoint_s: Annotated[
        float, typer.Option(help="Time between two checkpoints, at least --lag-s.", rich_help_panel=POLICY)
    ] = 600
    pause_s: Annotated[float, typer.Option(help="That the job waits for a checkpoint.", rich_help_panel=POLICY)] = 2
    lag_s: Annotated[float, typer.Option(help="Until a checkpoint can be restored.", rich_help_panel=POLICY)] = 60
    patience_s: Annotated[
        float, typer.Option(help="Longest outage that RoCE's retries survive.", rich_help_panel=POLICY)
    ] = 30
    reroute_s: Annotated[
        float, typer.Option(help="Until routing avoids a dead link; not MRC.", rich_help_panel=POLICY)
    ] = 0.1
    remap_s: Annotated[
        float, typer.Option(help="Until an MRC NIC stops using a dead port.", rich_help_panel=POLICY)
    ] = 3
    isolate_s: Annotated[float, typer.Option(help="Until a bad link above T0 is shut.", rich_help_panel=POLICY)] = 600
    spares: Annotated[float, typer.Option(help="Spare hosts, as a share of the job's.", rich_help_panel=POLICY)] = 0.01
    swap: Annotated[bool, typer.Option(help="Replace degraded hosts at every stop.", rich_help_panel=POLICY)] = True
    evict: Annotated[bool, typer.Option(help="And at a checkpoint, when it pays.", rich_help_panel=POLICY)] = True
    most_lost: Annotated[
        int, typer.Option(help="Planes that a NIC may lose before it is replaced.", rich_help_panel=POLICY)
    ] = 4
    drain: Annotated[bool, typer.Option(help="Move traffic away before maintenance.", rich_help_panel=POLICY)] = True

    def policy(self) -> Policy:
        """Return the policy of the simulated job."""
        return Policy(**asdict(self), failover_s=self.reroute_s)


@dataclass(frozen=True)
class JobOutput:
    """How much is asked, and where the answer goes."""

    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Add break-even values, sensitivity and the best policies; minutes.",
            rich_help_panel=RESULTS,
        ),
    ] = False
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for report.html, job.json, network.svg.", rich_help_panel=RESULTS),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=RESULTS)] = False
