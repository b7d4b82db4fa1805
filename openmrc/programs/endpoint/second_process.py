"""The peer on the same machine: this program in a second process."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from openmrc.errors import PeerError
from openmrc.live.host.nic_file import TOKEN_VARIABLE
from openmrc.live.objects.handshake import fresh_token

START_SECONDS = 600.0  # s; the first start may compile the engine, on a busy machine
END_SECONDS = 10.0


class SecondProcess:
    """A program that listens and requires `token`; its stdout is captured, its stderr is ours."""

    def __init__(self, arguments: Sequence[str], module: str = "openmrc.programs.main") -> None:
        """Start the process: `mrc` with these arguments, or another module of the package that takes --ready-fd."""
        reader, writer = os.pipe()
        command = [sys.executable, "-m", module, *arguments, "--ready-fd", str(writer)]
        self.token = fresh_token()  # other users of this machine can reach its port too
        environment = {**os.environ, TOKEN_VARIABLE: self.token}
        try:
            # In its own process group: Ctrl-C goes to the first process, which then stops this one cleanly.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, pass_fds=[writer], process_group=0, env=environment
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self._name = f"{module} {arguments[0]} (process {self._process.pid})"
        try:
            self.port = self._wait_for_port(reader)
        except BaseException:
            self.end()
            raise
        finally:
            os.close(reader)

    def end(self) -> None:
        """Terminate it; kill it if it does not exit within 2 s."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        self.end()

    def _wait_for_port(self, reader: int) -> int:
        if not select.select([reader], [], [], START_SECONDS)[0]:
            raise PeerError(f"{self._name}: was not ready within {START_SECONDS:g} s")
        received = os.read(reader, 16)  # written at once: a pipe does not split so few bytes
        if not received:
            raise PeerError(f"{self._name}: ended before it was ready, with exit code {self._process.wait()}")
        return int(received)
