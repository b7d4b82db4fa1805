"""Run `mrc perf` once its options are parsed: one end or both, and print the results."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

import typer

from openmrc.live.attributes import USER_TIMEOUT_S
from openmrc.live.host.planes import planes_beside
from openmrc.programs.endpoint.access import AccessPolicy, announcement
from openmrc.programs.endpoint.listening import Refusals, announce_port
from openmrc.programs.endpoint.opening import EndpointOptions, opened
from openmrc.programs.endpoint.second_process import SecondProcess
from openmrc.programs.outcome import print_json, reason, stoppable
from openmrc.programs.perf.options import PerfOutput
from openmrc.programs.perf.report import Details, Findings, PerfRun, header, line, plane_lines, report, second_line
from openmrc.programs.perf.session import Client, PerfServer, SessionOptions
from openmrc.programs.perf.words import PerfPlan
from openmrc.verbs import NO_TOKEN, ConnectionOptions, Context, Listener

STARTED_SECONDS = 120.0  # seconds that a server started by another process waits for its client


@dataclass(frozen=True)
class PerfCall:
    """One call of `mrc perf`."""

    endpoint: EndpointOptions
    plan: PerfPlan
    port: int
    access: AccessPolicy
    remote: tuple[str, ...]
    timeout: float
    output: PerfOutput
    for_ever: bool
    ready_fd: int | None

    def client(self, host: str) -> None:
        """Measure against a server elsewhere."""
        with stoppable(), opened(self.endpoint) as context:
            self._measure(context, host, self.port, self.access.token or NO_TOKEN)

    def both(self) -> None:
        """Start a server as a second process and measure against it."""
        with stoppable(), opened(self.endpoint) as context, SecondProcess(self._server_arguments()) as server:
            self._measure(context, "127.0.0.1", server.port, server.token)

    def server(self) -> None:
        """Wait for one client and run its requests."""
        with (
            stoppable(),
            Refusals(lambda line: typer.echo(f"mrc: {line}", err=True)) as refusals,
            opened(self.endpoint) as context,
            Listener(context, self.access.hosts, self.port, token=self.access.token, on_refusal=refusals) as listener,
        ):
            self._print(f"{context.describe()}; waiting for a client on TCP port {listener.port}")
            self._announce(listener)
            findings = self._findings("server")
            session = PerfServer(context, self.asked, self._session_options(findings, self.port), findings)
            with self._reporting(findings):
                session.run(listener, STARTED_SECONDS if self.ready_fd is not None else inf, refusals)

    @property
    def asked(self) -> ConnectionOptions:
        """Terms of each connection; the peer may be suspended for less than the time-out."""
        return ConnectionOptions(
            path_mtu=self.endpoint.mtu,
            max_send_wr=self.plan.depth,
            max_recv_wr=600,
            user_timeout=max(USER_TIMEOUT_S, self.timeout),
        )

    def _findings(self, role: str) -> Findings:
        return Findings(self.plan, Details(ok=True, role=role, cc=self.endpoint.algorithm))

    def _announce(self, listener: Listener) -> None:
        line = announcement(listener, self.access)
        if line is not None:
            typer.echo(f"mrc: {line}", err=True)
        announce_port(listener, self.ready_fd)

    def _measure(self, context: Context, host: str, port: int, token: str) -> None:
        self._print(context.describe())
        findings = self._findings("client")
        options = self._session_options(findings, port, token)
        if self.for_ever:
            signal.signal(signal.SIGINT, lambda *_: options.stop.set())
        with self._reporting(findings):
            Client(context, self.asked, options, findings).run(host)

    def _server_arguments(self) -> list[str]:
        planes = ",".join(planes_beside(self.endpoint.planes))
        arguments = ["perf", "--bind", "127.0.0.1", "--port", "0", "--planes", planes, "--quiet", "--json"]
        arguments += ["--format", self.endpoint.ev_format, "--cc", self.endpoint.algorithm]
        arguments += ["--tx-depth", str(self.plan.depth), "--qp", str(self.plan.queue_pairs)]
        return [*arguments, "--mtu", str(self.endpoint.mtu), "--timeout", str(self.timeout)]

    def _session_options(self, findings: Findings, port: int, token: str = NO_TOKEN) -> SessionOptions:
        in_gbits = self.output.in_gbits
        return SessionOptions(
            port=port,
            timeout=self.timeout,
            remote=self.remote,
            token=token,
            on_second=None if self.output.quiet else lambda second: self._print(second_line(second)),
            on_run=None if self.output.as_json else self._print_run,
            on_start=None if self.output.as_json else lambda: typer.echo(header(findings.plan.test, in_gbits)),
        )

    def _print(self, text: str) -> None:
        if not self.output.quiet:
            typer.echo(text, err=True)

    def _print_run(self, run: PerfRun) -> None:
        typer.echo(line(run, self.output.in_gbits))
        if self.output.each_way and run.theirs is not None:
            typer.echo(line(replace(run, theirs=None), self.output.in_gbits) + "  written locally")
            typer.echo(line(replace(run, ours=run.theirs, theirs=None), self.output.in_gbits) + "  written by the peer")

    @contextmanager
    def _reporting(self, findings: Findings) -> Iterator[None]:
        why: str | None = None
        try:
            yield
        except BaseException as error:
            why = reason(error) or type(error).__name__
            raise
        finally:
            self._report(findings, why)

    def _report(self, findings: Findings, error: str | None) -> None:
        if self.output.as_json:
            print_json(report(findings, self.output.in_gbits, error))
        elif findings.details.planes:
            typer.echo("\n".join(plane_lines(findings.details.planes)))
