"""The Debian packages: what is in them works where they are installed, and the same sources make the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import openmrc
from tests.native.building import PLANES, ROOT, library

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit", "dpkg-deb", "objdump")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    library()
    return built(tmp_path_factory.mktemp("first"))


def built(folder: Path) -> list[Path]:
    subprocess.run([ROOT / "packaging" / "debian.sh", sys.executable, folder], check=True, capture_output=True)
    return sorted(folder.glob("*.deb"))


def dpkg(tree: Path, *words: str | Path) -> str:
    """Act on the system whose root is `tree`, which lacks what the packages depend on."""
    command = ["dpkg", f"--root={tree}", "--force-depends,not-root", f"--log={os.devnull}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def installed(packages: list[Path], tmp_path: Path) -> Path:
    database = tmp_path / "var" / "lib" / "dpkg"
    for folder in ("info", "updates", "triggers"):
        (database / folder).mkdir(parents=True)
    (database / "status").touch()
    dpkg(tmp_path, "--install", *packages)
    return tmp_path


def library_of(tree: Path) -> Path:
    (found,) = tree.glob("usr/lib/*/libmrc.so.1")
    return found


def test_the_same_sources_make_the_same_bytes(packages: list[Path], tmp_path: Path) -> None:
    again = built(tmp_path)
    assert [each.name.split("_")[0] for each in again] == ["libmrc-dev", "libmrc1"]
    assert [each.read_bytes() for each in again] == [each.read_bytes() for each in packages]


def test_the_library_needs_libc_alone_and_is_small(installed: Path) -> None:
    said = subprocess.run(["objdump", "-p", library_of(installed)], capture_output=True, text=True, check=True).stdout
    assert [line.split()[1] for line in said.splitlines() if "NEEDED" in line] == ["libc.so.6"]
    assert library_of(installed).stat().st_size < 1e6


@pytest.mark.needs("ibv_devinfo")
def test_an_rdma_program_finds_the_device(installed: Path) -> None:
    found = {**os.environ, "LD_PRELOAD": str(library_of(installed)), "MRC_PLANES": PLANES}
    said = subprocess.run(["ibv_devinfo"], env=found, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "mrc0" in said


def test_nothing_is_left_of_what_is_removed(installed: Path) -> None:
    assert dpkg(installed, "--list").count("\nii  libmrc") == 2
    dpkg(installed, "--purge", "libmrc1", "libmrc-dev")
    assert not [path for path in (installed / "usr").rglob("*") if path.is_file()]


@pytest.mark.needs("pkg-config")
def test_a_program_is_built_with_the_headers_by_pkg_config(installed: Path) -> None:
    """With the tree as the root of the system, as for a cross compiler."""
    lib = library_of(installed).parent
    found = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(installed), "PKG_CONFIG_LIBDIR": str(lib / "pkgconfig")}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libmrc"], env=found, capture_output=True, text=True, check=True
    ).stdout.split()
    source = installed / "version.c"
    source.write_text("#include <mrc.h>\n#include <stdio.h>\nint main(void) { puts(mrc_library_version()); }\n")
    program = installed / "version"
    subprocess.run(["cc", source, *flags, f"-I{installed}/usr/include", f"-L{lib}", "-o", program], check=True)
    found = {**os.environ, "LD_LIBRARY_PATH": str(lib)}
    assert subprocess.run([program], env=found, capture_output=True, text=True, check=True).stdout.startswith(
        openmrc.__version__
    )


@pytest.mark.needs("lintian")
def test_lintian_finds_no_error(packages: list[Path]) -> None:
    done = subprocess.run(["lintian", "--fail-on", "error", *packages], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
