"""`mrc view`: one page with fabric, paths, goodput, verdicts and events, live."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from openmrc.base.shipped import find
from openmrc.errors import ConfigError, UsageError
from openmrc.lab.run import sockets_of
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.operations.page.host_source import HostSource
from openmrc.operations.page.lab_source import LabSource
from openmrc.operations.page.operated_simulation import OperatedSimulation
from openmrc.operations.page.pictures import PageSource
from openmrc.operations.page.recording import PageRecording
from openmrc.operations.page.users import PageUser, users_in
from openmrc.programs.outcome import check_file
from openmrc.sim.scenario.description import load
from openmrc.telemetry.metrics_server import parse_address


def view(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.yaml", help="A scenario, or a shipped one such as demo.")
    ] = None,
    host: Annotated[bool, typer.Option("--host", help="Show the running endpoints of this host.")] = False,
    lab: Annotated[str | None, typer.Option("--lab", help="Show a lab that is up, and be its controller.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="With --lab: deny what is named faulty.")] = False,
    step: Annotated[float, typer.Option(min=0.1, max=1e6, help="Simulated microseconds a frame.")] = 20.0,
    probes: Annotated[
        float, typer.Option(metavar="US", min=0.0, max=1e6, help="Of a simulation: probe each link so often; 0: never.")
    ] = 0.0,
    pace: Annotated[float, typer.Option(min=0.02, max=60.0, help="Least seconds between two frames.")] = 0.1,
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT; PORT alone is on loopback, 0 a free one.")] = "0",
    users: Annotated[Path | None, typer.Option(help="File of users: name, role, sha256 of a token.")] = None,
    record: Annotated[Path | None, typer.Option(help="Run to the end without a server, and write one file.")] = None,
    folder: Annotated[
        str | None, typer.Option(help="With --host: of the sockets. Else: for `mrc drain --ctl`.")
    ] = None,
) -> None:
    """Show a running simulation, a lab, or the endpoints of this host on a page; break and repair links by clicking."""
    if (scenario is not None) + host + (lab is not None) != 1:
        raise UsageError("give a scenario, such as demo, or --host, or --lab")
    if apply and lab is None:
        raise UsageError("--apply denies what is named faulty in a lab; give --lab NAME")
    check_file(record, "--record")
    if scenario is None and record is not None:
        raise UsageError("--record runs to the end, which only a simulation has")

    def opened() -> PageSource:
        if lab is not None:
            return LabSource(lab, apply)
        if scenario is None:
            return HostSource(folder)
        return OperatedSimulation(load(find(str(scenario))), step, None if folder is None else Path(folder), probes)

    if record is not None:
        _record(opened(), record)
        return
    with _listening(listen) as (address, sock):  # before anything that takes long
        known = [] if users is None else users_in(users)
        _serve(opened(), address, sock, Serving(pace, known, None if lab is None else StateFolder(sockets_of(lab))))


def _record(source: PageSource, path: Path) -> None:
    recording = PageRecording(source.picture())
    frame = source.frame()
    recording.add(frame)
    while not frame.finished:
        frame = source.frame()
        recording.add(frame)
    path.write_text(recording.page(), "utf-8")
    typer.echo(f"{path}: {len(recording.frames())} frames, {path.stat().st_size / 1e6:.1f} MB")


@contextmanager
def _listening(listen: str) -> Iterator[tuple[str, socket.socket]]:
    address, port = parse_address(listen, "--listen")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, port))
            sock.listen(64)
        except OSError as error:
            raise ConfigError(f"--listen: {listen}: {error.strerror}") from error
        yield address, sock


@dataclass(frozen=True)
class Serving:
    """How a page is served."""

    pace: float
    users: list[PageUser]
    state: StateFolder | None  # whose audit log has what users do; else a line on stderr

    def audit(self, who: str, does: str, what: str, outcome: str) -> None:
        if self.state is not None:
            self.state.record(does, what, outcome, user=who)
        else:
            typer.echo(f"mrc: {who}: {does} {what}: {outcome}", err=True)


def _serve(source: PageSource, address: str, sock: socket.socket, how: Serving) -> None:
    try:
        from openmrc.operations.page.web import PageServer, hosts_for, serve
    except ImportError as error:
        raise ConfigError("mrc view needs starlette and uvicorn: pip install '.[view]'") from error
    port = sock.getsockname()[1]
    page = PageServer(source, hosts_for(address, port), how.pace, how.users, how.audit)
    shown = f"[{address}]" if ":" in address else address
    typer.echo(f"mrc: open http://{shown}:{port}/#{'TOKEN' if how.users else page.token}")
    what = "a user's token" if how.users else "the token to change anything; without it the page only shows"
    typer.echo(f"mrc: the part behind # is {what}", err=True)
    serve(page, sock)
