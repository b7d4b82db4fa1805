"""Where exported files go: a folder, or one tar archive, as they come, never all in memory."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from openmrc.errors import ConfigError

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
