"""What `mrc native --install` and the public functions give to those who build programs."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

import openmrc
from openmrc.base.faults import Schedule
from openmrc.errors import ConfigError, MrcError, UsageError
from openmrc.native import library as native
from openmrc.native import objects
from openmrc.native.library import install
from openmrc.native.program import check_planes, check_program, environment
from tests.native.building import ROOT, library

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")


def test_a_program_is_built_against_an_installation(tmp_path: Path) -> None:
    library()
    made = install(tmp_path / "usr", lambda _: None)
    assert all(file.exists() for file in made)
    headers = {"mrc.h", "mrc_ctl.h", "mrc_api_ver.h", "mrc_ctl_api_ver.h"}
    assert {file.name for file in made} == {"libmrc.so.1", "libmrc.so", "libmrc.pc", "mrc-run.1", *headers}
    source = tmp_path / "version.c"
    source.write_text("#include <mrc.h>\n#include <stdio.h>\nint main(void) { puts(mrc_library_version()); }\n")
    lib = tmp_path / "usr" / "lib"
    command = ["cc", str(source), f"-I{tmp_path}/usr/include", f"-L{lib}", "-lmrc", f"-Wl,-rpath,{lib}"]
    subprocess.run([*command, "-o", str(tmp_path / "version")], check=True)
    said = subprocess.run([str(tmp_path / "version")], capture_output=True, text=True, check=True).stdout
    assert said.startswith(openmrc.__version__)


def test_the_package_says_where_library_and_headers_are() -> None:
    assert openmrc.get_library() == str(library())
    assert (Path(openmrc.get_include()) / "mrc.h").is_file()


def test_a_program_keeps_what_it_preloads_already() -> None:
    made = environment({"LD_PRELOAD": "/other.so"}, Path("/libmrc.so.1"), ["10.0.0.1", "10.0.1.1"], None)
    assert made == {"LD_PRELOAD": f"/libmrc.so.1{os.pathsep}/other.so", "MRC_PLANES": "10.0.0.1,10.0.1.1"}


@pytest.mark.parametrize("text", ["99.99", "192.0.2.211", "127.0.0.1,198.51.100.7", "fe80::1%none", "127.0.0.1:4791"])
def test_planes_that_could_not_be_opened_are_named_before_the_program_starts(text: str) -> None:
    with pytest.raises(UsageError, match=r"^MRC_PLANES: (99\.99|192|198|fe80|127.0.0.1:4791).*(this machine|MRC_PORT)"):
        check_planes({"MRC_PLANES": text}, "MRC_PLANES")
    check_planes({"MRC_PLANES": "127.0.0.1, 127.0.0.2"}, "MRC_PLANES")
    check_planes({}, "MRC_PLANES")


@pytest.mark.parametrize("text", ["mtu: 1500", "at: 1s, data_loss: 10%", "down: plane 2"])
def test_faults_that_cannot_be_are_refused_before_the_program_starts(text: str) -> None:
    schedule = Schedule.parse(text, "--faults")
    with pytest.raises(ConfigError, match=r"^--faults.*(for simulations|'plane 0' to 'plane 1')"):
        environment({}, Path("/libmrc.so.1"), ["10.0.0.1", "10.0.1.1"], schedule)


def test_the_manual_page_names_every_option() -> None:
    page = (ROOT / "native" / "mrc-run.1").read_text("utf-8")
    assert all(option in page for option in (r"\-\-planes", r"\-\-faults", r"\-\-quiet", "MRC_PORT", "MRC_LOG"))


def compiler_that(folder: Path, line: str) -> str:
    made = folder / "compiler"
    made.write_text(f"#!/bin/sh\n{line}\n")
    made.chmod(0o755)
    return str(made)


@pytest.mark.parametrize(
    "compiler", ["no-such-compiler", "echo 'x.c:1:10: fatal error: infiniband/verbs.h: No such file' >&2; exit 1"]
)
def test_what_a_build_lacks_is_named_before_anything_is_compiled(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiles(folder: Path, names: list[str]) -> None:
        raise AssertionError

    monkeypatch.setenv("CC", compiler_that(tmp_path, compiler) if " " in compiler else compiler)
    monkeypatch.setattr(objects, "compile_into", compiles)
    said = "libibverbs-dev.*rdma-core-devel.*rdma-core-dev.*compiled-wheel"
    with pytest.raises(MrcError, match=rf"(no-such-compiler|verbs\.h).*{said}"):
        native._compile_entries(tmp_path, lambda line: None)


def test_programs_into_which_nothing_can_be_preloaded_are_named(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    for name, options in (("dynamic", ()), ("alone", ("-static",)), ("musl", ("-Wl,-I,/lib/ld-musl-x86_64.so.1",))):
        subprocess.run(["cc", source, *options, "-o", tmp_path / name], check=True)
    check_program(str(tmp_path / "dynamic"))
    check_program("/no/such/program")
    (tmp_path / "script").write_text("#!/bin/sh\n")
    check_program(str(tmp_path / "script"))
    with pytest.raises(UsageError, match="alone: is linked statically"):
        check_program(str(tmp_path / "alone"))
    with pytest.raises(UsageError, match="musl: is linked with musl"):
        check_program(str(tmp_path / "musl"))


def test_an_installation_can_build_it_from_what_is_shipped() -> None:
    """Every file that the build reads matches one of the patterns of the package's data."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    shipped = {path.resolve() for pattern in table["openmrc"] for path in Path(openmrc.__file__).parent.glob(pattern)}
    assert {path.resolve() for path in [*native._sources(), native.MANUAL]} <= shipped
