"""`mrc send`: move files to a waiting `mrc recv`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmrc.cli import access_options
from openmrc.cli import transfer_options as options
from openmrc.errors import UsageError

if TYPE_CHECKING:
    from openmrc.apps.sending import Sender


def send(
    what: Annotated[list[str], typer.Argument(metavar="FILE... HOST", help="Files, and last where `mrc recv` runs.")],
    port: options.Port = 18516,
    planes: options.Planes = None,
    remote: options.Remote = None,
    ev_format: options.Format = "udp",
    mtu: options.Mtu = 0,
    timeout: options.Timeout = 30.0,
    impair: options.Impair = None,
    schedule: options.Schedule = None,
    token: access_options.Token = None,
    token_file: access_options.TokenFile = None,
    no_token: access_options.NoToken = False,
    capture: options.Capture = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Send files over all planes at once; done when the receiver has verified and stored each of them.

    Files travel under their last name. Nothing is resumed: a transfer that fails is to be started again.
    """
    from openmrc.apps.endpoint import EndpointOptions, connection_options, read_faults
    from openmrc.apps.planes import are_ours_to_choose
    from openmrc.apps.progress_bar import showing
    from openmrc.apps.sending import Sender, sources
    from openmrc.apps.transfer import TransferOptions
    from openmrc.cli.outcome import opened, planes_of, stoppable

    if len(what) < 2:
        raise UsageError("send: give at least one FILE, and last the HOST")
    *files, host = what
    shared = access_options.client_token(token, token_file, no_token)
    chosen = sources([Path(file) for file in files])
    ours, theirs = planes_of(planes, remote, host)
    faults = read_faults(impair, schedule)
    endpoint = EndpointOptions(ours, are_ours_to_choose(planes, None), ev_format, mtu, capture=capture)
    with stoppable(), opened(endpoint) as context:
        if not quiet:
            typer.echo(f"{context.describe()}; waiting for mrc recv at {host}, TCP port {port}", err=True)
        asked = connection_options(context, mtu, timeout)
        transfer = TransferOptions(port, timeout, remote=theirs, token=shared, faults=faults, connection=asked)
        sender = Sender(context, chosen, transfer)
        error: BaseException | None = None
        try:
            with showing(sender.progress, quiet):
                sender.run(host)
        except BaseException as caught:
            error = caught
            raise
        finally:
            _report(sender, error, as_json)


def _report(sender: Sender, error: BaseException | None, as_json: bool) -> None:
    from openmrc.apps.transfer import summary
    from openmrc.cli.outcome import error_text, print_json

    result = sender.result(error_text(error) if error is not None else None)
    if as_json:
        print_json(result)
    elif error is None:
        typer.echo(f"OK sent {summary(result)}")
    elif sender.began:
        typer.echo(f"mrc: {sender.progress.done} of {sender.progress.total} bytes were taken", err=True)
