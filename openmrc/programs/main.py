"""The `mrc` command: find the subcommand; turn the package's errors into one line and an exit code.

Subcommands are imported when they are called; the main help imports none.
"""

from __future__ import annotations

import difflib
import importlib
import io
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from openmrc.errors import MrcError, UsageError
from openmrc.programs.outcome import USAGE, file_error, json_errors


class Subcommand(NamedTuple):
    """Location of a command, and its line in the help above it."""

    target: str  # "module:attribute" in openmrc.programs: a function, or a Typer with subcommands
    about: str


class CommandGroup(NamedTuple):
    """Commands below a command, and its line in the main help."""

    about: str
    commands: dict[str, Subcommand]


COMMANDS: dict[str, dict[str, Subcommand | CommandGroup]] = {
    "Try it": {
        "demo": Subcommand(
            "demo.command:demo", "Move data over four planes, and by TCP over one, while planes go down."
        ),
    },
    "Move data": {
        "perf": Subcommand("perf.command:perf", "Measure bandwidth and latency between two processes."),
    },
    "Run programs of others": {
        "run": Subcommand("run:run", "Run an RDMA program on MRC, without a NIC."),
        "native": Subcommand("native:native", "Show the native library, its headers and how to use it."),
    },
    "Train": {
        "collperf": Subcommand(
            "training.collperf:collperf", "Measure and verify collectives, with nccl-tests' flags and columns."
        ),
        "train": CommandGroup(
            "Explain why a training step was slow.",
            {
                "explain": Subcommand(
                    "training.train:explain", "Explain why steps were slow: a late rank, lost packets."
                )
            },
        ),
    },
    "Packets": {
        "ev": CommandGroup(
            "Entropy values: expand and inspect profiles.",
            {
                "expand": Subcommand("packets.ev:expand", "Print each EV of a profile and its bits on the wire."),
                "show": Subcommand("packets.ev:show", "Print the fields of a profile, and how many EVs they allow."),
            },
        ),
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
        "sim": CommandGroup(
            "Simulate fabrics packet by packet, with failures.",
            {
                "ask": Subcommand("simulation.sim_ask:ask", "Answer a design question with a sweep."),
                "run": Subcommand("simulation.sim:run", "Run one scenario; exit 1 if not every flow finished."),
                "sweep": Subcommand("simulation.sim:sweep", "Run every combination of a sweep; finished points stay."),
                "compare": Subcommand("simulation.sim:compare", "Run scenarios with and without their faults."),
                "steps": Subcommand("simulation.sim_steps:steps", "Run hours of training steps."),
                "schema": Subcommand("simulation.sim:schema", "Print the JSON Schema of scenario files."),
            },
        ),
    },
    "Fabrics": {
        "fabric": CommandGroup(
            "Build, verify, export and compare a fabric's tables.",
            {
                "build": Subcommand("fabrics.commands:build", "Write names, addresses, tables and EV profiles."),
                "show": Subcommand("fabrics.commands:show", "Summarise a fabric, or show one node."),
                "path": Subcommand("fabrics.commands:path", "Follow one EV from NIC to NIC, hop by hop."),
                "verify": Subcommand("fabrics.verify:verify", "Prove that every EV is delivered on its path."),
                "profile": Subcommand("fabrics.commands:profile", "Print the EV profile of a pair of NICs."),
                "export": Subcommand("fabrics.export:export", "Write complete device configurations."),
                "diff": Subcommand("fabrics.diff:diff", "Print missing, extra and wrong entries of switches."),
                "cables": Subcommand("fabrics.cables:cables", "List every cable, with both ends."),
                "cabled": Subcommand("fabrics.commands:cabled", "Compare LLDP dumps with the planned cables."),
                "bom": Subcommand("fabrics.cables:bom", "Count machines, switches, transceivers and cables."),
                "page": Subcommand("fabrics.commands:page", "Write one HTML page to hand on."),
                "schema": Subcommand("fabrics.commands:schema", "Print the JSON Schema of fabric.yaml."),
            },
        ),
        "lab": CommandGroup(
            "Run a real SRv6 fabric in namespaces of this machine (needs root).",
            {
                "up": Subcommand("fabrics.lab:up", "Build hosts, switches and cables."),
                "down": Subcommand("fabrics.lab:down", "Remove a lab, and stop the processes in it."),
                "list": Subcommand("fabrics.lab:list_", "List all labs: up, incomplete or gone."),
                "status": Subcommand("fabrics.lab:status", "Show sent, arrived, marked, trimmed and lost packets."),
                "exec": Subcommand("fabrics.lab:exec", "Run a command on one of the lab's nodes."),
                "fault": Subcommand("fabrics.lab:fault", "Inject and clear faults, now or on a schedule."),
            },
        ),
    },
    "Operate": {
        "drain": Subcommand("operations.drain:drain", "Take a part out of use, after a proof of what remains."),
        "undrain": Subcommand("operations.drain:undrain", "Use what was drained again."),
        "map": CommandGroup(
            "Probe every link of a fabric and name the faulty part.",
            {
                "plan": Subcommand("operations.map:plan", "Choose the probes of a fabric."),
                "try": Subcommand("operations.map:try_out", "Break parts of a modelled plane and see what is named."),
                "watch": Subcommand("operations.map_watch:watch", "Control a lab, this host, or agents of hosts."),
                "note": Subcommand("operations.map:note", "Note a change or work at a part, for work orders."),
                "agent": Subcommand("operations.map_watch:agent", "Report for this host to a controller."),
                "certs": Subcommand("operations.map_watch:certs", "Make certificates for controller and hosts."),
            },
        ),
        "ctl": CommandGroup(
            "Look at running endpoints of this host, and control them: programs that were started with MRC_CTL=on.",
            {
                "list": Subcommand("endpoint.ctl:list_endpoints", "List the endpoints of this user."),
                "device": Subcommand("endpoint.ctl:device", "Show an endpoint and its limits."),
                "ports": Subcommand("endpoint.ctl:ports", "Show the ports of an endpoint."),
                "port": Subcommand("endpoint.ctl:port", "Enable or disable a port."),
                "evs": Subcommand("endpoint.ctl:evs", "Show the EVs of the queue pairs."),
                "votes": Subcommand("endpoint.ctl:votes", "Show losses, trims, marks and deliveries by path."),
                "deny": Subcommand("endpoint.ctl:deny", "Deny EVs, so that no data takes them."),
                "renew": Subcommand("endpoint.ctl:renew", "Extend the leases of all denials."),
                "lift": Subcommand("endpoint.ctl:lift", "Lift denials: those that are named, or all."),
                "denials": Subcommand("endpoint.ctl:denials", "Show what is denied, and for how long."),
                "profiles": Subcommand("endpoint.ctl_profiles:profiles", "Show the profiles of an endpoint."),
                "format": Subcommand("endpoint.ctl_profiles:ev_format", "Change or show an EV format profile."),
                "profile": Subcommand("endpoint.ctl_profiles:profile", "Change or show an EV profile."),
                "array": Subcommand("endpoint.ctl_profiles:array", "Show the EVs of a profile."),
                "cc": Subcommand("endpoint.ctl_profiles:cc", "Change or show a congestion control profile."),
                "use": Subcommand("endpoint.ctl_profiles:use", "Set the profiles of connections that name none."),
                "events": Subcommand("endpoint.ctl_profiles:events", "Print EVs that fail and recover."),
                "probe": Subcommand("endpoint.ctl_profiles:probe", "Send an EV probe on each path."),
            },
        ),
        "metrics": Subcommand("endpoint.metrics:metrics", "Print or serve what all endpoints of this host count."),
        "view": Subcommand("operations.view:view", "Show a running simulation, a lab or this host on a live page."),
        "top": Subcommand("endpoint.metrics:top", "Watch planes, EVs, the worst paths and queue pairs of this host."),
    },
    "This machine": {
        "warm": Subcommand("warm:warm", "Compile the engine in advance."),
        "doctor": Subcommand(
            "doctor.command:doctor", "Check what this machine lacks for a lab, and which timeout of a job fires first."
        ),
    },
}


class LazyGroup(TyperGroup):
    """A group that imports a command only to run it, to complete it or to show its help."""

    sections: Mapping[str, Mapping[str, Subcommand | CommandGroup]] = COMMANDS
    path = ""  # of the command, below mrc

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return [name for section in self.sections.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return the command; None if the name is unknown."""
        found = next((section[cmd_name] for section in self.sections.values() if cmd_name in section), None)
        if found is None:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _load(f"{self.path} {cmd_name}".strip(), found)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names; suggest a similar one if there is none."""
        if self.get_command(ctx, args[0]) is None and args[0][:1].isalnum():
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --json, a failure also prints an object."""
        with nullcontext() if self.path else json_errors(ctx.args):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by section."""
        width = max(len(name) for section in self.sections.values() for name in section)
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), command.about) for name, command in section.items()])


def _load(path: str, command: Subcommand | CommandGroup) -> Any:
    name = path.split()[-1]
    if isinstance(command, CommandGroup):
        group = LazyGroup(name=name, help=command.about, no_args_is_help=True, rich_markup_mode=None)
        group.path, group.sections = path, {"Commands": command.commands}
        return group
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
    help_pages.complete(loaded, path)
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without what bars are drawn with
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
