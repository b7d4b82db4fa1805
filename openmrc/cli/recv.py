"""`mrc recv`: wait for `mrc send` and store what it brings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmrc.cli import access_options
from openmrc.cli import transfer_options as options
from openmrc.errors import MrcError

if TYPE_CHECKING:
    from openmrc.apps.listening import Refusals
    from openmrc.apps.receiving import Acceptance, Receiver
    from openmrc.apps.transfer import TransferOptions
    from openmrc.verbs import Context, Listener


def recv(
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for the files; created if missing.")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    max_size: Annotated[str | None, typer.Option("--max-size", help="Most bytes of one transfer, such as 10G.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End after one transfer.")] = False,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many transfers.")] = None,
    wait: Annotated[float | None, typer.Option("--wait", min=0, help="Seconds to wait for a sender.")] = None,
    port: options.Port = 18516,
    bind: access_options.Bind = None,
    token: access_options.Token = None,
    token_file: access_options.TokenFile = None,
    no_token: access_options.NoToken = False,
    planes: options.Planes = None,
    remote: options.Remote = None,
    ev_format: options.Format = "udp",
    mtu: options.Mtu = 0,
    timeout: options.Timeout = 30.0,
    impair: options.Impair = None,
    schedule: options.Schedule = None,
    capture: options.Capture = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Receive files, verify them, and give them their names when they are whole.

    Serves one sender after the other until Ctrl-C, --once or --count. With --json one object a line for each.
    The exit code is 1 if a transfer failed.
    """
    from openmrc.apps.access import announcement
    from openmrc.apps.endpoint import EndpointOptions, connection_options, read_faults
    from openmrc.apps.listening import Refusals, announce_port, open_listener
    from openmrc.apps.planes import are_ours_to_choose
    from openmrc.apps.receiving import Acceptance, make_folder
    from openmrc.apps.sizes import size_bytes
    from openmrc.apps.transfer import DEFAULT_PORT, TransferOptions
    from openmrc.cli.outcome import opened, planes_of, stoppable

    make_folder(out)
    access = access_options.listening_access(bind, token, token_file, no_token)
    refusals = Refusals(lambda line: typer.echo(f"mrc: {line}", err=True))
    limit = size_bytes(max_size, "--max-size") if max_size is not None else None
    ours, theirs = planes_of(planes, remote, None)
    faults = read_faults(impair, schedule)
    endpoint = EndpointOptions(ours, are_ours_to_choose(planes, None), ev_format, mtu, capture=capture)
    with (
        stoppable(),
        opened(endpoint) as context,
        open_listener(context, port, access, refusals) as listener,
    ):
        asked = TransferOptions(
            port, timeout, remote=theirs, faults=faults, connection=connection_options(context, mtu, timeout)
        )
        if not quiet:
            typer.echo(f"{context.describe()}; waiting on TCP port {listener.port}", err=True)
        line = announcement(listener, access, "mrc send FILE", DEFAULT_PORT, "send files")
        if line is not None:
            typer.echo(f"mrc: {line}", err=True)
        announce_port(listener, ready_fd)
        serving = Serving(context, listener, refusals, Acceptance(out, force, limit), asked, wait, as_json, quiet)
        failures = serving.run(1 if once else count)
    if failures:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Serving:
    """One sender after the other."""

    context: Context
    listener: Listener
    refusals: Refusals
    acceptance: Acceptance
    options: TransferOptions
    wait: float | None
    as_json: bool
    quiet: bool

    def run(self, count: int | None) -> int:
        """Serve `count` senders, or for ever; return how many transfers failed."""
        failures = served = 0
        while count is None or served < count:
            failures += not self._serve_one()
            served += 1
        return failures

    def _serve_one(self) -> bool:
        from openmrc.apps.progress_bar import showing
        from openmrc.apps.receiving import Receiver

        receiver = Receiver(self.context, self.acceptance, self.options)
        error: BaseException | None = None
        met = False
        try:
            receiver.meet(self.listener, self.wait, self.refusals)
            met = True
            with showing(receiver.progress, self.quiet):
                receiver.serve()
        except MrcError as caught:
            error = caught
            if not met:
                raise
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._report(receiver, error)
        return error is None

    def _report(self, receiver: Receiver, error: BaseException | None) -> None:
        from openmrc.apps.transfer import summary
        from openmrc.cli.outcome import error_text, print_json

        result = receiver.result(error_text(error) if error is not None else None)
        if self.as_json:
            print_json(result)
        elif error is None:
            typer.echo(f"OK received {summary(result)}")
        if isinstance(error, MrcError) and receiver.peer:
            typer.echo(f"mrc: {error}", err=True)
