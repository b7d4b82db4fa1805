"""A whole fabric's files, node by node: many may write those of a folder (`Each`), an archive has one writer."""

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import check, every_node, export, exporter

ARCHIVES = {".tar": "w", ".tgz": "w:gz", ".gz": "w:gz"}


def write(files: Iterable[tuple[str, str]], out: Path) -> Iterator[int]:
    """Write (name, text) to the folder `out`, or the archive if it is called so; yield each file's bytes when written.

    Files in an archive have no date and no owner, so the same fabric makes the same archive (but for gzip's header).
    """
    try:
        if out.suffix in ARCHIVES:
            out.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(out, ARCHIVES[out.suffix]) as archive:  # type: ignore[call-overload,unused-ignore]
                for name, text in files:
                    member = tarfile.TarInfo(name)
                    member.size, member.mode = len(text.encode()), 0o644
                    archive.addfile(member, io.BytesIO(text.encode()))
                    yield member.size
        else:
            out.mkdir(parents=True, exist_ok=True)
            for name, text in files:
                yield _write_file(f"{out}/{name}", text.encode())
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
    """Write a target's files to the folder or archive `out`; yield the bytes of each file, some switches at a time."""
    check(target, options)
    if target == "containerlab" or out.suffix in ARCHIVES:
        yield from ([size] for size in write(export(plan, target, options, nodes), out))
        return
    files = exporter(plan, target, options, nodes)
    every = nodes if nodes is not None else every_node(plan, target)
    yield from each(lambda node: list(write(files(node), out)), every)
