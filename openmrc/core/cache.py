"""Where compiled code is cached, and under which key.

Numba's own stamp looks at one file and would go on running old code after an edit elsewhere. Here the key is a digest
of every source that can be part of an entry: all files with kernels that its package may import, and what they import.
A change in the simulator therefore compiles nothing of the live endpoint again, and a change in a file without
kernels compiles nothing at all. Checkouts with the same sources share their compiled code.

A wheel may ship compiled code (`make compiled-wheel`); its first use copies that into the user's cache.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SHIPPED = PACKAGE / "compiled"  # in wheels that ship compiled code
SHARED_FOLDERS = ("core", "wire", "engine")  # whose kernels every world compiles
WORLDS = {  # world -> the folders it compiles
    "live": ("live",),
    "sim": ("sim",),
    "planner": ("planner",),
    "native": ("live", "native"),
}
KEPT_DAYS = 14  # unused that long, a folder is removed; several checkouts may share a home directory

_KERNELS = re.compile(r"^from openmrc\.core\.(jit|memory) import", re.MULTILINE)
_IMPORT = re.compile(r"^\s*from (openmrc[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\w+")


_chosen = ""


def choose_entry(name: str) -> None:
    """Compile only the entry `name` in this process, or with "!NAME" all but that one; before entries are imported.

    The others run interpreted, so that two processes can share the work of one world.
    """
    global _chosen
    _chosen = name


def is_left_out(name: str) -> bool:
    """Whether this process leaves an entry interpreted."""
    return name == _chosen[1:] if _chosen.startswith("!") else _chosen not in ("", name)


def is_compiled(world: str, flags: str, name: str) -> bool:
    """Whether compiled code of an entry lies in the cache; of another Numba or processor, it is not used."""
    return any(cache_dir(world, flags, lambda _: None).glob(f"*/*.{name}-*.nbi"))


@functools.cache
def cache_dir(world: str, flags: str, say: Callable[[str], None]) -> Path:
    """Return the writable folder for compiled code of exactly these sources.

    `world` is the package of the entry below `openmrc`, `flags` whatever else changes the code. Where the user's
    cache cannot be written, compiled code goes to a private folder of the temporary directory, and `say` says so.
    """
    key = _digest(world, flags)
    preferred = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openmrc"
    try:
        return _use(preferred, key)
    except OSError as error:
        fallback = Path(tempfile.gettempdir()) / f"openmrc-{os.getuid()}"
        say(f"openmrc: {preferred}: {error.strerror}; compiled code goes to {fallback} (set XDG_CACHE_HOME to change)")
    try:
        _make_private(fallback)
        return _use(fallback, key)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="openmrc-"))


def lock_beside(path: Path, when_busy: Callable[[], None]) -> int | None:
    """Wait for the lock beside a file and return its descriptor; None where the folder takes no lock.

    The kernel releases it when the process ends, however it ends. `when_busy` is called before waiting.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_busy()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def unlock(descriptor: int) -> None:
    os.close(descriptor)


def _use(root: Path, key: str) -> Path:
    folder = root / key
    root.mkdir(parents=True, exist_ok=True)
    if not folder.exists() and (SHIPPED / key).is_dir():
        _copy_shipped(folder)
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        os.utime(folder)
    _prune(root)
    return folder


def _copy_shipped(folder: Path) -> None:
    """Copy shipped code to `folder` in one step: another process sees all of it or none."""
    with tempfile.TemporaryDirectory(prefix="copy-", dir=folder.parent) as beside:
        copy = shutil.copytree(SHIPPED / folder.name, Path(beside) / folder.name)
        os.utime(copy)  # with the age of the wheel, another process might prune it
        with contextlib.suppress(OSError):  # another process was first
            copy.rename(folder)


def _make_private(folder: Path) -> None:
    """Make a folder that only this user can write: the cache holds code."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to another user or can be written by others")


def _prune(root: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 86_400
    for folder in root.iterdir():
        if folder.is_dir() and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def _digest(world: str, flags: str) -> str:
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {flags}".encode())  # Numba's index holds its version
    for source in sorted(sources(world)):
        digest.update(source.relative_to(PACKAGE).as_posix().encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:20]


def sources(world: str) -> set[Path]:
    """Return the files whose code, constants or rows can be part of an entry of `world`."""
    folders = (*SHARED_FOLDERS, *WORLDS.get(world, ("live", "sim")))
    waiting = [path for folder in folders for path in (PACKAGE / folder).rglob("*.py") if _KERNELS.search(_text(path))]
    found = {PACKAGE / "core" / "jit.py", PACKAGE / "core" / "linking.py"}
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_imported(path))
    return found


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _imported(path: Path) -> list[Path]:
    """Return the files of ours that `path` imports, as modules or names out of them."""
    names = (
        f"{module}.{name}"
        for module, listed in _IMPORT.findall(_text(path))
        for name in ("", *_NAME.findall(listed.split("#")[0]))
    )
    candidates = (PACKAGE.joinpath(*name.rstrip(".").split(".")[1:]).with_suffix(".py") for name in names)
    return [each for each in candidates if each.is_file()]
