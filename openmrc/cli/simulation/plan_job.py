"""`mrc plan job`: what failures cost a whole training job, on MRC and on its rivals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from openmrc.cli.outcome import print_json

Seconds = float


def job(
    gpus: Annotated[int, typer.Option("--gpus", help="NICs of the job; one NIC per GPU.")] = 100_000,
    nic: Annotated[str, typer.Option("--nic", help="Rate per NIC, such as 800G.")] = "800G",
    planes: Annotated[int, typer.Option("--planes", help="Planes of MRC and UET.")] = 8,
    switch: Annotated[str, typer.Option("--switch", help="Capacity per switch, such as 51.2T.")] = "51.2T",
    parts: Annotated[Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.")] = None,
    model: Annotated[Literal["dense", "moe"], typer.Option(help="What the job exchanges.")] = "dense",
    networks: Annotated[
        str, typer.Option(help="Networks to compare, the one of interest first.")
    ] = "mrc,roce,roce_adaptive,roce_dual,uet",
    days: Annotated[float, typer.Option(help="Length of the job.")] = 30,
    jobs: Annotated[int, typer.Option(help="Number of jobs to simulate.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same numbers.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads; the numbers do not depend on it.")] = 1,
    detect_s: Annotated[Seconds, typer.Option(help="Until a host's failure stops the job.")] = 30,
    diagnose_s: Annotated[Seconds, typer.Option(help="Until the failed host is known.")] = 120,
    restart_s: Annotated[Seconds, typer.Option(help="From then until steps continue.")] = 180,
    checkpoint_s: Annotated[Seconds, typer.Option(help="Time between two checkpoints.")] = 600,
    pause_s: Annotated[Seconds, typer.Option(help="That the job waits for a checkpoint.")] = 2,
    lag_s: Annotated[Seconds, typer.Option(help="Until a checkpoint can be restored.")] = 60,
    patience_s: Annotated[Seconds, typer.Option(help="Longest outage that RoCE's retries survive.")] = 30,
    reroute_s: Annotated[Seconds, typer.Option(help="Until routing avoids a dead link; not MRC.")] = 0.1,
    remap_s: Annotated[Seconds, typer.Option(help="Until an MRC NIC stops using a dead port.")] = 3,
    isolate_s: Annotated[Seconds, typer.Option(help="Until a bad link above T0 is shut.")] = 600,
    spares: Annotated[float, typer.Option(help="Spare hosts, as a share of the job's.")] = 0.01,
    swap: Annotated[bool, typer.Option(help="Replace degraded hosts at every stop.")] = True,
    evict: Annotated[bool, typer.Option(help="And at a checkpoint, when it pays.")] = True,
    drain: Annotated[bool, typer.Option(help="Move traffic away before maintenance.")] = True,
    infant: Annotated[float, typer.Option(help="How much more often parts fail at first, fading in a week.")] = 0,
    deep: Annotated[
        bool, typer.Option("--deep", help="Add break-even values, sensitivity and the best policies; minutes.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for report.html, job.json, network.svg.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate a training job of many days: what it loses to the network, to hosts and to its own policy."""
    from openmrc.fabric.model.parts import load_parts
    from openmrc.fabric.model.rates import gbps
    from openmrc.jobs.comparison import JobQuestion
    from openmrc.jobs.outcome import outcome
    from openmrc.jobs.policy import Policy

    policy = Policy(
        detect_s=detect_s, diagnose_s=diagnose_s, restart_s=restart_s, checkpoint_s=checkpoint_s, pause_s=pause_s,
        lag_s=lag_s, patience_s=patience_s, reroute_s=reroute_s, failover_s=reroute_s, remap_s=remap_s,
        isolate_s=isolate_s, spares=spares, swap=swap, evict=evict, drain=drain,
    )  # fmt: skip
    question = JobQuestion(
        gpus=gpus, nic_gbps=gbps(nic), planes=planes, switch_tbps=gbps(switch) / 1000, model=model, days=days,
        jobs=jobs, seed=seed, threads=threads, infant=infant, policy=policy,
    )  # fmt: skip
    names = tuple(name.strip() for name in networks.split(",") if name.strip())
    result = outcome(question, names, load_parts(parts), deep=deep)
    if out is not None:
        result["out"] = str(out)
        _write(result, out)
    if as_json:
        print_json(result)
    else:
        _print(result)


def _write(result: dict[str, Any], folder: Path) -> None:
    """Write the page, the numbers, and the picture for slides."""
    import json

    from openmrc.errors import UsageError
    from openmrc.report.month import month_page, share_picture

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out: {folder} is a file; expected a folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(month_page(result), encoding="utf-8")
    (folder / "network.svg").write_text(share_picture(result["networks"]), encoding="utf-8")
    (folder / "job.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _print(result: dict[str, Any]) -> None:
    from rich.table import Table

    from openmrc.apps.terminal import print_table
    from openmrc.jobs.outcome import sentence
    from openmrc.report.month import turning

    networks = result["networks"]
    asked = result["question"]
    table = Table(title=f"{asked['gpus']:,} GPUs, {asked['days']:g} days, mean of {asked['jobs']} jobs; percent")
    table.add_column("")
    for each in networks:
        table.add_column(f"{each['title']}\n{each['design']}", justify="right")
    rows = [("lost to the network", "network_lost_percent"), ("lost to hosts and software", "host_lost_percent"),
            ("lost to checkpoints", "policy_lost_percent")]  # fmt: skip
    for label, name in rows:
        table.add_row(label, *(f"{each[name]:.2f}" for each in networks))
    table.add_row("goodput", *(f"{each['goodput_percent']['mean']:.2f}" for each in networks))
    table.add_row("5th to 95th percentile", *(
        f"{each['goodput_percent']['p5']:.1f} to {each['goodput_percent']['p95']:.1f}" for each in networks
    ))  # fmt: skip
    for name in networks[0]["lost_percent"]:
        table.add_row(f"  {name}", *(f"{each['lost_percent'][name]:.3f}" for each in networks))
    table.add_row("stops by the network, a job", *(f"{each['network_stops']:,.1f}" for each in networks))
    table.add_row("stops by hosts and software, a job", *(f"{each['host_stops']:,.1f}" for each in networks))
    table.add_row("GPU-hours lost to the network", *(f"{each['network_gpu_hours']:,.0f}" for each in networks))
    print_table(table)
    typer.echo(sentence(result))
    for text in turning(result) if "break_even" in result else ():
        typer.echo(text)
    if "out" in result:
        typer.echo(f"written to {result['out']}")
