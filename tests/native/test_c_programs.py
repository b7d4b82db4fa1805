"""Programs in C: each test of those in native/tests, a loader by path, and the examples."""

from __future__ import annotations

import re
import subprocess

import pytest

from harness.free_port import free_port
from openmrc.base.faults import Schedule
from openmrc.native.program import fault_steps
from tests.native.building import ROOT, environment, library, program

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")


def named_in(source: str) -> list[str]:
    return re.findall(r"^    TEST\((\w+)\)", (ROOT / "native/tests" / source).read_text("utf-8"), re.MULTILINE)


TESTS = named_in("device.c")
CTL_TESTS = named_in("ctl.c")
EMULATED_TESTS = named_in("emulated.c")
MEMORY_TESTS = named_in("memory.c")
RIGHTS_TESTS = named_in("rights.c")
SEMANTICS_TESTS = named_in("semantics.c")
LONG = {"a_write_may_be_as_long_as_the_port_says"}  # 2 GiB


def start(*command: object, **settings: str) -> subprocess.Popen[str]:
    given = {**environment(**settings), "LD_PRELOAD": ""}
    words = [str(word) for word in command]
    return subprocess.Popen(words, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(*command: object, timeout: float = 60, **settings: str) -> str:
    running = start(*command, **settings)
    try:
        said = running.communicate(timeout=timeout)[0]
    finally:
        running.kill()
    assert running.returncode == 0, said
    return said


@pytest.mark.parametrize("name", TESTS)
def test_device(name: str) -> None:
    run(program("tests/device.c"), name)


@pytest.mark.parametrize("name", EMULATED_TESTS)
def test_emulation(name: str) -> None:
    run(program("tests/emulated.c"), name)


@pytest.mark.parametrize("name", MEMORY_TESTS)
def test_memory(name: str) -> None:
    run(program("tests/memory.c"), name)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive if name in LONG else ()) for name in SEMANTICS_TESTS]
)
def test_semantics(name: str) -> None:
    run(program("tests/semantics.c"), name, timeout=300)


@pytest.mark.parametrize("name", RIGHTS_TESTS)
def test_rights(name: str) -> None:
    run(program("tests/rights.c"), name)


@pytest.mark.parametrize("name", CTL_TESTS)
def test_control(name: str) -> None:
    run(program("tests/ctl.c"), name)


def test_the_listener_prints_the_evs_of_a_plane_that_is_silent() -> None:
    made, port = program("examples/mrc_ev_listener.c"), str(free_port())
    silent = fault_steps(Schedule.parse("down: plane 2"), 4)
    server = start(made, "-p", port, MRC_FAULT_STEPS=silent)
    try:
        said = run(made, "-p", port, "-n", "1", "-t", "20", "127.0.0.1")
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
    heads, first, *_ = [line.split() for line in said.splitlines() if not line.startswith("mrc:")]
    assert heads == ["Seconds", "Port", "EV", "State", "Lost"]
    assert first[1::2] == ["3", "ASSUMED_BAD"]  # planes count from 0, ports from 1
    assert int(first[2], 16) >> 10 == 0xC000 + (2 << 10) >> 10
    assert first[4] == "0"


def probes(faults: str, status: int) -> list[list[str]]:
    made, port = program("examples/mrc_prober.c"), str(free_port())
    settings = {"MRC_FAULT_STEPS": fault_steps(Schedule.parse(faults), 4)} if faults else {}
    server = start(made, "-p", port, **settings)
    try:
        prober = start(made, "-p", port, "-n", "5", "-i", "5", "-t", "300", "127.0.0.1")
        said = prober.communicate(timeout=60)[0]
        assert prober.returncode == status, said
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
    heads, *paths = [line.split() for line in said.splitlines() if not line.startswith("mrc:")]
    assert heads == ["Port", "EV", "State", "Probes", "Answered", "Median(us)", "Most(us)"]
    return paths


def test_the_prober_finds_every_path_and_its_round_trip() -> None:
    paths = probes("", 0)
    assert [path[0] for path in paths] == [str(port) for port in range(1, 5) for _ in range(8)]
    assert {path[4] for path in paths} == {"5"}
    assert all(0 < float(path[5]) <= float(path[6]) for path in paths)


def test_the_prober_says_which_paths_never_answered() -> None:
    paths = probes("down: plane 1", 1)
    assert {path[0] for path in paths if path[4] == "0"} == {"2"}
    assert sum(path[4] == "0" for path in paths) == 8


def test_a_program_that_opens_it_by_path_finds_every_name() -> None:
    run(program("tests/loader.c", "-ldl"), library())


def test_an_adapter_from_verbs_to_mrc_needs_thirteen_functions_and_seven() -> None:
    made = program("tests/adapter.c", "-ldl", linked=False)
    run(made, library())


def test_the_bandwidth_example_prints_its_table() -> None:
    made, port = program("examples/mrc_bw.c"), str(free_port())
    server = start(made, "-p", port, "-s", "16384")
    try:
        said = run(made, "-p", port, "-s", "16384", "-n", "200", "-l", "16", "-c", "127.0.0.1")
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
    *lines, heads, times = [line for line in said.splitlines() if not line.startswith("mrc:")]
    assert heads.split() == ["Polls", "Median(us)", "p99.9(us)", "Most(us)"]
    polls, median, rare, most = map(float, times.split())
    assert polls > 0
    assert 0 < median <= rare <= most
    assert lines[0].split() == ["MsgSize", "TotalOps", "BW_avg(Gbps)", "MsgRate(Mpps)"]
    assert [int(line.split()[0]) for line in lines[1:]] == [1 << bits for bits in range(15)]


def test_the_ping_pong_example_checks_every_turn_and_prints_its_times() -> None:
    made, port = program("examples/mrc_pingpong.c"), str(free_port())
    server = start(made, "-p", port, "-n", "500", "-s", "5000")
    try:
        said = run(made, "-p", port, "-n", "500", "-s", "5000", "127.0.0.1")
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
    heads, times = [line.split() for line in said.splitlines() if not line.startswith("mrc:")]
    assert heads == ["Bytes", "RoundTrips", "Median(us)", "p99(us)"]
    assert times[:2] == ["5000", "450"]
    assert 0 < float(times[2]) <= float(times[3])


def test_records_go_round_a_ring_between_two_processes() -> None:
    made, port = program("tests/ring.c"), str(free_port())
    consumer = start(made, port)
    try:
        run(made, port, "127.0.0.1")
        assert consumer.wait(timeout=60) == 0, consumer.communicate()[0]
    finally:
        consumer.kill()


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("header", ["mrc.h", "mrc_ctl.h"])
@pytest.mark.parametrize("version", ["", "-D{}_API_VER_USED=0x01000000u", "-D{}_API_VER_USED=0xFFFFFFFFu"])
def test_the_header_is_clean(language: str, header: str, version: str) -> None:
    space = header.removesuffix(".h").upper()
    source = f"#include <{header}>\nint main(void) {{ return {space}_API_VER_USED == 0; }}\n"
    standard = "-std=c11" if language == "c" else "-std=c++17"
    command = ["cc", "-x", language, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    words = [*command, *filter(None, [version.format(space)]), f"-I{ROOT / 'native/include'}", "-"]
    subprocess.run(words, input=source, text=True, check=True)


@pytest.mark.parametrize("header", ["mrc.h", "mrc_ctl.h"])
def test_a_version_that_is_too_new_is_an_error(header: str) -> None:
    source = f"#define {header.removesuffix('.h').upper()}_API_VER_USED 0x02000000u\n#include <{header}>\n"
    words = ["cc", "-x", "c", "-fsyntax-only", f"-I{ROOT / 'native/include'}", "-"]
    done = subprocess.run(words, input=source, text=True, capture_output=True, check=False)
    assert "newer than this header" in done.stderr


def test_a_gid_says_all_planes_or_is_refused() -> None:
    parts = [str(ROOT / "native/src/endpoint" / name) for name in ("gids.c", "planes.c")]
    run(program("tests/gids.c", *parts, linked=False))


def test_the_crc_is_that_of_ethernet_by_every_way_of_this_processor() -> None:
    run(program("src/endpoint/crc32.c", "-DMRC_TEST_CRC32"))
