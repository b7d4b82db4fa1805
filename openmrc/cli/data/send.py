"""`mrc send`: send files to a waiting `mrc recv`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmrc.cli.data import transfer_options as options
from openmrc.cli.data.access_options import Secret
from openmrc.cli.option_groups import with_groups
from openmrc.errors import UsageError

if TYPE_CHECKING:
    from openmrc.apps.transfer.sending import FileSender


Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE... HOST", help="Files to send, followed by the host on which `mrc recv` runs."),
]


@with_groups
def send(
    what: Files,
    local: options.TransferLocal,
    network: options.TransferNetwork,
    secret: Secret,
    output: options.TransferOutput,
    port: options.Port = 18516,
) -> None:
    """Send files over all planes; finish when the receiver has verified and stored each of them.

    Files are sent under their base names. A failed transfer is not resumed: start it again.
    """
    from openmrc.apps.endpoint import connection_options, read_faults
    from openmrc.apps.transfer.progress_bar import showing
    from openmrc.apps.transfer.sending import FileSender, sources
    from openmrc.apps.transfer.transfer import TransferOptions
    from openmrc.cli.outcome import opened, stoppable

    if len(what) < 2:
        raise UsageError("send: give at least one FILE, then the HOST")
    *files, host = what
    token, chosen = secret.client(), sources([Path(file) for file in files])
    ours, theirs = local.addresses(host)
    faults = read_faults(network.impair, network.schedule)
    with stoppable(), opened(local.endpoint(ours, network.capture)) as context:
        if not output.quiet:
            typer.echo(f"{context.describe()}; waiting for mrc recv at {host}, TCP port {port}", err=True)
        asked = connection_options(context, local.mtu, local.timeout)
        transfer = TransferOptions(port, local.timeout, remote=theirs, token=token, faults=faults, connection=asked)
        sender = FileSender(context, chosen, transfer)
        error: BaseException | None = None
        try:
            with showing(sender.progress, output.quiet):
                sender.run(host)
        except BaseException as caught:
            error = caught
            raise
        finally:
            _report(sender, error, output.as_json)


def _report(sender: FileSender, error: BaseException | None, as_json: bool) -> None:
    from openmrc.apps.transfer.transfer import summary
    from openmrc.cli.outcome import error_text, print_json

    result = sender.result(error_text(error) if error is not None else None)
    if as_json:
        print_json(result)
    elif error is None:
        typer.echo(f"OK sent {summary(result)}")
    elif sender.began:
        typer.echo(f"mrc: {sender.progress.done} of {sender.progress.total} bytes were sent", err=True)
