"""A whole fabric's files in a folder, node by node: many may write them (`Each`)."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import check, every_node, export, exporter


def _write(files: Iterable[tuple[str, str]], out: Path) -> list[int]:
    """Write (name, text) to the folder `out`; return the bytes of each file."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return [_write_file(f"{out}/{name}", text.encode()) for name, text in files]
    except OSError as error:
        raise ConfigError(f"{error.filename or out}: cannot be written: {error.strerror}") from None


def _write_file(path: str, content: bytes) -> int:
    """Write a file without a buffer, which takes longer to make than a small file to write."""
    left = memoryview(content)
    with io.FileIO(path, "w") as file:
        while left:
            left = left[file.write(left) :]
    return len(content)


class Each(Protocol):
    """Applies work to every item, in order, as `map` does."""

    def __call__(self, work: Callable[[int], Any], items: Sequence[int], /) -> Iterator[Any]: ...


def write_all(
    plan: UsidPlan, target: str, options: ExportOptions, out: Path, nodes: Sequence[int] | None = None, each: Each = map
) -> Iterator[list[int]]:
    """Write a target's files to the folder `out`; yield the bytes of each file, some switches at a time."""
    check(target, options)
    if target == "containerlab":
        yield _write(export(plan, target, options), out)
        return
    files = exporter(plan, target, options, nodes)
    every = nodes if nodes is not None else every_node(plan, target)
    yield from each(lambda node: _write(files(node), out), every)
