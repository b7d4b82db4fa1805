"""`mrc recv`: wait for `mrc send` and store the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmrc.cli.data import transfer_options as options
from openmrc.cli.data.access_options import Credentials
from openmrc.cli.data.transfer_options import TransferOutput
from openmrc.cli.option_groups import with_groups
from openmrc.errors import MrcError

if TYPE_CHECKING:
    from openmrc.apps.listening import Refusals
    from openmrc.apps.transfer.receiving import Acceptance, FileReceiver
    from openmrc.apps.transfer.transfer import TransferOptions
    from openmrc.verbs import Context, Listener


STORING, SERVING = "Files", "Duration"  # panels of the help


@dataclass(frozen=True)
class Storing:
    """Accepted files, and their folder."""

    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="DIR", help="Folder for the files; created if missing.", rich_help_panel=STORING
        ),
    ] = Path()
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.", rich_help_panel=STORING)] = False
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", help="Largest total size of a transfer, such as 10G.", rich_help_panel=STORING),
    ] = None

    def acceptance(self) -> Acceptance:
        """Return the receiver's acceptance rules; create the folder."""
        from openmrc.apps.sizes import size_bytes
        from openmrc.apps.transfer.receiving import Acceptance, make_folder

        limit = size_bytes(self.max_size, "--max-size") if self.max_size is not None else None
        make_folder(self.out)
        return Acceptance(self.out, self.force, limit)


@dataclass(frozen=True)
class HowLong:
    """Number of transfers, and the wait for each."""

    once: Annotated[bool, typer.Option("--once", help="Exit after one transfer.", rich_help_panel=SERVING)] = False
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Exit after this many transfers.", rich_help_panel=SERVING)
    ] = None
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait", min=0, callback=options.seconds, help="Seconds to wait for a sender.", rich_help_panel=SERVING
        ),
    ] = None


@with_groups
def recv(
    storing: Storing,
    how_long: HowLong,
    credentials: Credentials,
    local: options.TransferLocal,
    network: options.TransferNetwork,
    output: TransferOutput,
    port: options.Port = 18516,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Receive files, verify them, and store them under their names once they are complete.

    Serve one sender after the other until Ctrl-C, --once or --count. With --json, print one object per line.
    The exit code is 1 if a transfer failed.
    """
    from openmrc.apps.access import announcement
    from openmrc.apps.endpoint import connection_options, read_faults
    from openmrc.apps.listening import Refusals, announce_port, open_listener
    from openmrc.apps.transfer.transfer import DEFAULT_PORT, TransferOptions
    from openmrc.cli.outcome import opened, stoppable

    acceptance, access = storing.acceptance(), credentials.listening()
    ours, theirs = local.addresses(None)
    faults = read_faults(network.impair, network.schedule)
    with (
        stoppable(),
        Refusals(lambda line: typer.echo(f"mrc: {line}", err=True)) as refusals,
        opened(local.endpoint(ours, network.capture)) as context,
        open_listener(context, port, access, refusals) as listener,
    ):
        connection = connection_options(context, local.mtu, local.timeout)
        asked = TransferOptions(port, local.timeout, remote=theirs, faults=faults, connection=connection)
        if not output.quiet:
            typer.echo(f"{context.describe()}; waiting on TCP port {listener.port}", err=True)
        line = announcement(listener, access, "mrc send FILE", DEFAULT_PORT, "send files")
        if line is not None:
            typer.echo(f"mrc: {line}", err=True)
        announce_port(listener, ready_fd)
        serving = Serving(context, listener, refusals, acceptance, asked, how_long.wait, output)
        failures = serving.run(1 if how_long.once else how_long.count)
    if failures:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Serving:
    """Serves one sender after the other."""

    context: Context
    listener: Listener
    refusals: Refusals
    acceptance: Acceptance
    options: TransferOptions
    wait: float | None
    output: TransferOutput

    def run(self, count: int | None) -> int:
        """Serve `count` senders, or without end; return the number of failed transfers."""
        failures = served = 0
        while count is None or served < count:
            failures += not self._serve_one()
            served += 1
        return failures

    def _serve_one(self) -> bool:
        from openmrc.apps.transfer.progress_bar import showing
        from openmrc.apps.transfer.receiving import FileReceiver

        receiver = FileReceiver(self.context, self.acceptance, self.options)
        error: BaseException | None = None
        met = False
        try:
            receiver.meet(self.listener, self.wait, self.refusals)
            met = True
            with showing(receiver.progress, self.output.quiet):
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

    def _report(self, receiver: FileReceiver, error: BaseException | None) -> None:
        from openmrc.apps.transfer.transfer import summary
        from openmrc.cli.outcome import error_text, print_json

        result = receiver.result(error_text(error) if error is not None else None)
        if self.output.as_json:
            print_json(result)
        elif error is None:
            typer.echo(f"OK received {summary(result)}")
        if isinstance(error, MrcError) and receiver.peer:
            typer.echo(f"mrc: {error}", err=True)
