"""The `mrc` command: collects the subcommands and turns the package's errors into one line and an exit code."""

from __future__ import annotations

import sys

import typer

from openmrc.cli import decode, ev, fabric, plan, sim
from openmrc.errors import MrcError

app = typer.Typer(
    name="mrc",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Multipath Reliable Connection (OCP MRC 1.0) in software.",
)

app.command(name="decode")(decode.decode)
app.add_typer(ev.app, name="ev")
app.add_typer(plan.app, name="plan")
app.add_typer(fabric.app, name="fabric")
app.add_typer(sim.app, name="sim")


def main() -> None:
    """Run the command line; exit 1 with one line on stderr when the package reports an error."""
    try:
        app()
    except MrcError as error:
        typer.echo(f"mrc: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
