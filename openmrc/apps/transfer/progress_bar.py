"""The progress of a transfer on stderr: a bar on a terminal, one line per second elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from openmrc.apps.sizes import gbps, size_text
from openmrc.apps.transfer import transfer

LINE_SECONDS = 1.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{(task.finished_speed or task.speed or 0) * 8e-9:.2f} Gb/s", style="cyan")


class _Bar(Progress):
    """Reads the transfer's numbers whenever it is drawn."""

    def __init__(self, moving: transfer.TransferProgress, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            _Rate(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._moving = moving
        self._drawn = self.add_task("", total=None)

    def get_renderables(self) -> Iterable[RenderableType]:
        moving = self._moving
        if moving.total:
            what = f"{moving.files_done}/{moving.files} {moving.current}"
            self.update(self._drawn, completed=moving.done, total=moving.total, description=what[:60])
        return super().get_renderables()


@contextlib.contextmanager
def showing(moving: transfer.TransferProgress, quiet: bool) -> Iterator[None]:
    """Show the progress of `moving` while the block runs."""
    console = Console(stderr=True, highlight=False, markup=False)
    if quiet:
        yield
    elif console.is_terminal:
        with _Bar(moving, console):
            yield
    else:
        with _lines(moving, console):
            yield


@contextlib.contextmanager
def _lines(moving: transfer.TransferProgress, console: Console) -> Iterator[None]:
    over = threading.Event()
    speaker = threading.Thread(target=_speak, args=(moving, console, over), daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join()


def _speak(moving: transfer.TransferProgress, console: Console, over: threading.Event) -> None:
    before, since = moving.done, time.monotonic()
    while not over.wait(LINE_SECONDS):
        done, now = moving.done, time.monotonic()
        if moving.total:
            console.print(
                f"{done / moving.total:4.0%}  {size_text(done)} of {size_text(moving.total)}  "
                f"{gbps(done - before, now - since):.2f} Gb/s  {moving.current}",
                markup=False,
                soft_wrap=True,
            )
        before, since = done, now
