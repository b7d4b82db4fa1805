"""`mrc map agent` and `mrc map certs`: hosts whose controller is elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from openmrc.ctl.folder import folder_of
from openmrc.errors import UsageError
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.fleets.agents.certificates import CONTROLLER, agent_tls, make_certificates
from openmrc.operations.fleets.agents.host_agent import HostAgent
from openmrc.operations.fleets.agents.host_prober import HostProber
from openmrc.operations.fleets.agents.link import AgentLink, run_agent
from openmrc.operations.fleets.agents.messages import fabric_digest
from openmrc.operations.fleets.fleet import Fleet
from openmrc.programs.fabrics.files import FabricFile, answer, load_plan, load_topology
from openmrc.programs.outcome import Json, check_folder, stoppable
from openmrc.telemetry.metrics_server import parse_address

Certificates = Annotated[Path, typer.Option("--certs", help="Folder of ca.pem and one's own certificate and key.")]


def agent(
    file: FabricFile,
    host: Annotated[str, typer.Argument(metavar="HOST", help="This host's name in the fabric, such as h3.")],
    controllers: Annotated[
        list[str], typer.Option("--controller", help="ADDRESS:PORT of a controller; more are tried in turn.")
    ],
    certificates: Certificates,
    probes: Annotated[bool, typer.Option("--probes/--no-probes", help="Send probes besides reading votes.")] = True,
    folder: Annotated[Path | None, typer.Option("--ctl", help="Folder of the endpoints' sockets.")] = None,
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="End after so many seconds.")] = None,
) -> None:
    """Speak for this host: report what its endpoints and probes see to a controller, and have denied what it says."""
    plan = load_plan(file)
    nic, digest = plan.topology.node_named(host), fabric_digest(plan.topology)
    where = [parse_address(each, "--controller") for each in controllers]
    agent_tls(certificates, host)  # an error in it is told before anything else is done
    fleet = Fleet(folder_of(None if folder is None else str(folder)), PathIndex(plan), nic)
    prober = HostProber(plan, nic) if probes else None
    begun = time.monotonic()
    try:
        with stoppable():
            run_agent(
                HostAgent(fleet, prober), prober, where,
                lambda address: AgentLink(address, agent_tls(certificates, host), digest),  # files may be new ones
                lambda: seconds is not None and time.monotonic() - begun >= seconds,
                lambda text: typer.echo(f"mrc: {host}: {text}", err=True),
            )  # fmt: skip
    finally:
        fleet.close()
        if prober is not None:
            prober.close()


def certs(
    file: FabricFile,
    hosts: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these (default: all).")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write; an authority in it is used again.")] = Path("certs"),
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificates are valid.")] = 90,
    as_json: Json = False,
) -> None:
    """Make an authority, a controller's certificate and one for each host of a fabric, with their keys."""
    topology = load_topology(file)
    known = [topology.name(nic) for nic in range(topology.nics)]
    for name in hosts or []:
        if name not in (*known, CONTROLLER):
            raise UsageError(f"{name!r} is neither a host of {topology.fabric.name} nor {CONTROLLER!r}")
    check_folder(out, "--out")
    written = make_certificates(out, topology.fabric.name, hosts or [CONTROLLER, *known], days)
    answer({"folder": str(out), "days": days, "certificates": len(written) // 2}, as_json)
