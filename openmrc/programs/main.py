"""The `mrc` command: find the subcommand; turn the package's errors into one line and an exit code.

Subcommands are imported when they are called; the main help imports none.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from openmrc.errors import MrcError, UsageError
from openmrc.programs.outcome import USAGE, file_error, json_errors


class Subcommand(NamedTuple):
    """Location of a subcommand, and its line in the main help."""

    target: str  # "module:attribute" in openmrc.programs: a function, or a Typer with subcommands
    about: str


COMMANDS: dict[str, dict[str, Subcommand]] = {
    "Try it": {
        "demo": Subcommand(
            "demo.command:demo", "Move data over four planes, and by TCP over one, while planes go down."
        ),
    },
    "Move data": {
        "perf": Subcommand("perf.command:perf", "Measure bandwidth and latency between two processes."),
    },
    "Run programs of others": {
        "run": Subcommand("library.run:run", "Run an RDMA program on MRC, without a NIC."),
        "native": Subcommand("library.native:native", "Show the native library, its headers and how to use it."),
    },
    "Train": {
        "collperf": Subcommand(
            "training.collperf:collperf", "Measure and verify collectives, with nccl-tests' flags and columns."
        ),
        "train": Subcommand("training.train:app", "Explain why a training step was slow."),
    },
    "Packets": {
        "ev": Subcommand("packets.ev:app", "Entropy values: expand and inspect profiles."),
        "decode": Subcommand(
            "packets.decode:decode", "Decode MRC packets from a capture file or from hexadecimal digits."
        ),
        "clause": Subcommand("packets.clause:clause", "Print a rule of MRC with its source, code and tests."),
        "conform": Subcommand("packets.conform:conform", "Test over the wire whether a device speaks MRC."),
    },
    "Plan and simulate": {
        "plan": Subcommand(
            "simulation.plan:app", "Size a fabric: switches, optics, power, cost, blast radius; a job's month."
        ),
        "sim": Subcommand("simulation.sim:app", "Simulate fabrics packet by packet, with failures."),
    },
    "Fabrics": {
        "fabric": Subcommand("fabrics.commands:app", "Build, verify, export and compare a fabric's tables."),
        "lab": Subcommand("fabrics.lab:app", "Run a real SRv6 fabric in namespaces of this machine."),
    },
    "Operate": {
        "drain": Subcommand("operations.drain:drain", "Take a part out of use, after a proof of what remains."),
        "undrain": Subcommand("operations.drain:undrain", "Use what was drained again."),
        "map": Subcommand("operations.map:app", "Probe every link of a fabric and name the faulty part."),
        "ctl": Subcommand("endpoint.ctl:app", "Look at running endpoints of this host, and control them."),
        "metrics": Subcommand("endpoint.metrics:metrics", "Print or serve what all endpoints of this host count."),
        "view": Subcommand("operations.view:view", "Show a running simulation, a lab or this host on a live page."),
        "top": Subcommand("endpoint.top:top", "Watch planes, EVs, the worst paths and queue pairs of this host."),
    },
    "This machine": {
        "warm": Subcommand("warm_command:warm", "Compile the engine in advance."),
        "doctor": Subcommand(
            "doctor.command:doctor", "Check what this machine lacks for a lab, and which timeout of a job fires first."
        ),
    },
}


class LazyGroup(TyperGroup):
    """A group that imports a command only to run it, to complete it or to show its help."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return the command; None if the name is unknown."""
        found = next((section[cmd_name] for section in COMMANDS.values() if cmd_name in section), None)
        if found is None:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name, found)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names; suggest a similar one if there is none."""
        if self.get_command(ctx, args[0]) is None and args[0][:1].isalnum():
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --json, a failure also prints an object."""
        with json_errors(ctx.args):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by section."""
        width = max(len(name) for section in COMMANDS.values() for name in section)
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), command.about) for name, command in section.items()])


def _load(name: str, command: Subcommand) -> Any:
    from openmrc.programs import help_pages

    module, _, attribute = command.target.partition(":")
    target = getattr(importlib.import_module(f"openmrc.programs.{module}"), attribute)
    if isinstance(target, typer.Typer):
        loaded: Any = typer.main.get_group(target)
        loaded.name = name
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name, context_settings=getattr(target, "context_settings", None))(target)
        loaded = typer.main.get_command(alone)
    help_pages.complete(loaded, name)
    return loaded


app = typer.Typer(
    name="mrc",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rendering the main help with rich would double its time
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="mrc COMMAND --help has examples. Results print as JSON by --json. Completion: mrc --install-completion.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"mrc {version('openmrc')}")
        raise typer.Exit


@app.callback()
def mrc(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Multipath Reliable Connection (OCP MRC 1.0) in software."""


def main() -> None:
    """Run the command line. An error prints one line on stderr; the exit code is 2 for wrong usage, otherwise 1."""
    try:
        app()
    except MrcError as error:
        typer.echo(f"mrc: {error}", err=True)
        sys.exit(USAGE if isinstance(error, UsageError) else 1)
    except MemoryError as error:
        why = f"{error}; " if str(error) else ""
        typer.echo(f"mrc: out of memory: {why}a smaller fabric or workload, or fewer EVs, takes less", err=True)
        sys.exit(1)
    except OSError as error:
        about = file_error(error)
        if about is None:
            raise
        typer.echo(f"mrc: {about}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
