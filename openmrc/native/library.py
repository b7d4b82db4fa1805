"""The native library: where it is, and how it is made from the compiled entries and the C sources beside the package.

A wheel with compiled code ships it. Any other installation builds it at its first use, into the user's cache: the
entries once for each state of the Python sources (a minute or more), the C around them in a second.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from openmrc.core.cache import PACKAGE, cache_dir
from openmrc.errors import ConfigError, MrcError
from openmrc.version import __version__

SONAME = "libmrc.so.1"
SHIPPED = PACKAGE / "lib" / SONAME
SOURCES = PACKAGE / "native" / "c"  # in a checkout a link to its folder `native`
MANUAL = SOURCES / "mrc-run.1"
_PKG_CONFIG = """prefix={prefix}
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: libmrc
Description: Multipath Reliable Connection (OCP MRC 1.0) in software, with a verbs device
Version: {version}
Libs: -L${{libdir}} -lmrc
Cflags: -I${{includedir}}
"""
_OPTIONS = (
    *("-std=gnu11", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-pthread"),
    *("-Wall", "-Wextra", "-Wshadow", "-Werror"),
)
_WHAT_TO_INSTALL = (
    "Debian, Ubuntu: apt install gcc libc6-dev libibverbs-dev; Fedora: dnf install gcc rdma-core-devel; "
    "Alpine: apk add gcc musl-dev rdma-core-dev; "
    "for hosts without a compiler `make compiled-wheel` builds a wheel elsewhere"
)
# No symbol unresolved, none bound late, no writable relocations, no executable stack, no text relocations.
_LINKING = (
    *("-shared", f"-Wl,-soname,{SONAME}", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack"),
    *("-Wl,-z,text", "-Wl,--gc-sections", "-pthread"),
)


def include_folder() -> Path:
    """Return the folder of `mrc.h`."""
    return SOURCES / "include"


def library(say: Callable[[str], None], extra: tuple[str, ...] = ()) -> Path:
    """Return the library, built first if it is not there or stale; MrcError if this machine cannot build it.

    `say` is told what takes long; `extra` are options of the C compiler, for sanitizers.
    """
    if SHIPPED.is_file() and not extra:
        return SHIPPED
    folder = entries_folder(say)
    header = folder / "description.h"
    key = hashlib.sha256("\0".join([compiler(), *_OPTIONS, *_LINKING, *extra]).encode())
    for source in [header, *_sources()]:
        key.update(source.name.encode() + source.read_bytes())
    made = folder / f"lib-{key.hexdigest()[:16]}"
    if not (made / SONAME).is_file():
        check_headers()
        with tempfile.TemporaryDirectory(dir=folder) as work:
            _link(Path(work), folder.resolve(), extra)
            _publish(Path(work), made)
    return made / SONAME


def install(prefix: Path, say: Callable[[str], None]) -> list[Path]:
    """Install library, headers, pkg-config file and manual page below `prefix`; return the files.

    ConfigError: a folder that cannot be written.
    """
    built, headers = library(say), include_folder()
    folders = {name: prefix / name for name in ("lib", "include", "lib/pkgconfig", "share/man/man1")}
    made = [folders["lib"] / SONAME, *(folders["include"] / header.name for header in sorted(headers.glob("*.h")))]
    try:
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip([built, *sorted(headers.glob("*.h"))], made, strict=True):
            shutil.copy(source, target)
        link = folders["lib"] / "libmrc.so"
        link.unlink(missing_ok=True)
        link.symlink_to(SONAME)
        description = folders["lib/pkgconfig"] / "libmrc.pc"
        description.write_text(_PKG_CONFIG.format(prefix=prefix, version=__version__), encoding="ascii")
        made += [link, description]
        made.append(Path(shutil.copy(MANUAL, folders["share/man/man1"])))
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    return made


def entries_folder(say: Callable[[str], None]) -> Path:
    """Return the folder with the compiled entries and the generated header of exactly these sources."""
    from openmrc.native import objects

    folder = cache_dir("native", f"objects for {objects.target().cpu}", say)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests and commands may want it at the same time
        _compile_entries(folder, say)
    return folder


def _compile_entries(folder: Path, say: Callable[[str], None]) -> None:
    from openmrc.native import description, objects
    from openmrc.native.entries import ENTRIES

    missing = [name for name in ENTRIES if not (folder / f"{name}.o").is_file()]
    if missing:
        check_headers()
        say("openmrc: compiling the entries of the native library (once, about a minute; cached afterwards) ...")
        objects.compile_into(folder, missing)
    text = description.header(f"{__version__}-{folder.name[:8]}")
    header = folder / "description.h"
    if not header.is_file() or header.read_text(encoding="ascii") != text:
        (folder / "description.part").write_text(text, encoding="ascii")
        (folder / "description.part").rename(header)


def compiler() -> str:
    """Return the C compiler: `CC`, or `cc`; MrcError if there is none."""
    wanted = os.environ.get("CC", "cc")
    found = shutil.which(wanted)
    if found is None:
        raise MrcError(f"native library: no C compiler {wanted!r} ({_WHAT_TO_INSTALL})")
    return found


def check_headers() -> None:
    """Raise MrcError, before minutes of compiling, unless there are a compiler and the headers of libibverbs."""
    probe = [compiler(), "-E", "-o", os.devnull, "-x", "c", "-"]
    header = "#include <infiniband/verbs.h>\n"
    done = subprocess.run(probe, input=header, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
        raise MrcError(f"native library: {reason} ({_WHAT_TO_INSTALL})")


def _sources() -> list[Path]:
    files = [path for folder in ("src", "include") for path in (SOURCES / folder).rglob("*.[ch]")]
    return [SOURCES / "libmrc.map", *sorted(files)]


def _link(work: Path, folder: Path, extra: tuple[str, ...]) -> None:
    from openmrc.native.entries import ENTRIES

    sources = [str(path) for path in _sources() if path.suffix == ".c"]
    objects = [str(folder / f"{name}.o") for name in sorted(ENTRIES)]
    places = ("-I", str(folder), "-I", str(SOURCES / "src"), "-I", str(SOURCES / "include"))
    names = f"-Wl,--version-script={SOURCES / 'libmrc.map'}"
    # Debug information names the same folders wherever it is built, so that releases can be compared.
    shown = (f"-ffile-prefix-map={PACKAGE}=openmrc", f"-ffile-prefix-map={folder}=.")
    made = ("-o", str(work / SONAME))
    _run([compiler(), *_OPTIONS, *extra, *shown, *places, *_LINKING, names, *sources, *objects, *made], folder)
    (work / "libmrc.so").symlink_to(SONAME)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MrcError(f"native library: the C compiler failed\n{done.stderr[-4000:]}")


def _publish(work: Path, made: Path) -> None:
    """Make the finished files visible in one step; another process may have been first."""
    made.mkdir(exist_ok=True)
    for name in (SONAME, "libmrc.so"):
        (work / name).rename(made / name)
