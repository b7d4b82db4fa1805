"""Debian's own verbs programs, unmodified, with the library preloaded."""

from __future__ import annotations

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.free_port import free_port
from tests.native.building import ROOT, environment, library, run

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")


def pair(program: str, *options: str, timeout: float = 60, **settings: str) -> tuple[str, str]:
    """Run a program of perftest as server and client; return what both said."""
    command = [program, "-p", str(free_port()), *options]
    both = [*command, "127.0.0.1"]
    server = subprocess.Popen(
        command, env=environment(**settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        client = run(both, timeout, **settings)
        for _ in range(50):  # the server may not listen yet
            if client.returncode == 0 or "Couldn't connect" not in client.stdout + client.stderr:
                break
            time.sleep(0.1)
            client = run(both, timeout, **settings)
        said = server.communicate(timeout=timeout)[0]
    finally:
        server.kill()
        server.wait()
    if "Can't produce a report" in client.stdout + client.stderr + said:
        pytest.skip("perftest, which times loops first, found no rate of the clock on this busy machine")
    assert client.returncode == 0, client.stdout + client.stderr
    assert server.returncode == 0, said
    return client.stdout, said


def pingpong(size: int) -> tuple[str, str]:
    """Run ibv_rc_pingpong, whose ends compare what they receive with what the other sends; return what both said."""
    command = ["ibv_rc_pingpong", "-p", str(free_port()), "-g", "3", "-n", "50", "-s", str(size), "-c"]
    settings = environment(MRC_EMULATE="send")
    server = subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for _ in range(100):  # the server may not listen yet
            client = run([*command, "127.0.0.1"], MRC_EMULATE="send")
            if client.returncode == 0 or "Couldn't connect" not in client.stderr:
                break
            time.sleep(0.1)
        said = server.communicate(timeout=30)[0]
    finally:
        server.kill()
        server.wait()
    assert client.returncode == 0, client.stdout + client.stderr
    return client.stdout, said


def rows(text: str) -> list[list[float]]:
    """The lines of numbers of perftest's table."""
    return [[float(word) for word in line.split()] for line in text.splitlines() if re.match(r"^ ?\d+ +\d+ ", line)]


@pytest.mark.needs("ibv_devinfo")
def test_ibv_devices_lists_it() -> None:
    assert re.search(r"mrc0\s+[0-9a-f]{16}", run("ibv_devices").stdout)


@pytest.mark.needs("ibv_devinfo")
def test_ibv_devinfo_describes_it_and_one_line_says_which_planes_were_chosen() -> None:
    done = run("ibv_devinfo -v")
    assert done.returncode == 0
    assert "PORT_ACTIVE" in done.stdout
    assert re.search(r"GID\[ +3\]:\s+fd4d:5243:1300:.*RoCE v2", done.stdout)
    assert done.stderr.count("\n") == 1
    assert "4 planes given 127.0.0.1 127.0.0.2 127.0.0.3 127.0.0.4" in done.stderr
    assert run("ibv_devinfo", MRC_LOG="off").stderr == ""


@pytest.mark.needs("ib_write_bw")
def test_ib_write_bw_writes_over_four_planes() -> None:
    client, _ = pair("ib_write_bw", "-n", "500")
    assert rows(client)[0][:2] == [65536, 500]


@pytest.mark.needs("ib_write_bw")
def test_two_pairs_of_programs_share_one_nic() -> None:
    """Four processes, all with the same addresses: each finds its own peer."""
    with ThreadPoolExecutor(2) as at_once:
        jobs = [at_once.submit(pair, "ib_write_bw", "-n", "1000", "-s", size) for size in ("65536", "4096")]
        assert [rows(job.result()[0])[0][:2] for job in jobs] == [[65536, 1000], [4096, 1000]]


@pytest.mark.needs("ibv_devinfo")
def test_two_pairs_on_one_nic_receive_what_their_own_peer_sent() -> None:
    sizes = (4096, 20_000)
    with ThreadPoolExecutor(2) as at_once:
        jobs = [at_once.submit(pingpong, size) for size in sizes]
        assert [f"{2 * size * 50} bytes" in job.result()[0] for job, size in zip(jobs, sizes, strict=True)] == [
            True
        ] * 2


@pytest.mark.needs("ib_write_bw")
def test_planes_that_go_down_in_the_middle_do_not_stop_it() -> None:
    from openmrc.base.faults import Schedule
    from openmrc.native.program import fault_steps

    steps = fault_steps(Schedule.parse("at: 200ms, down: plane 1; at: 300ms, down: plane 2; at: 1s, up: plane 1"), 4)
    client, _ = pair("ib_write_bw", "-n", "5000", MRC_FAULT_STEPS=steps)
    assert rows(client)[0][:2] == [65536, 5000]


@pytest.mark.needs("ibv_devinfo")
def test_a_word_that_names_nothing_to_emulate_is_refused_and_said() -> None:
    done = run("ibv_devinfo", MRC_EMULATE="send,atomics")
    assert done.returncode != 0
    assert "mrc: MRC_EMULATE: atomics is none of send, read and rnr" in done.stderr
    assert "SEND and READ emulated" in run("ibv_devinfo", MRC_EMULATE="send, read").stderr


@pytest.mark.needs("ibv_devinfo")
def test_ibv_rc_pingpong_verifies_what_it_receives() -> None:
    for said in pingpong(4096):
        assert "50 iters" in said


@pytest.mark.needs("ibv_devinfo")
@pytest.mark.parametrize(
    ("planes", "said"), [("127.0.0.1,nowhere", "nowhere is not an IP address"), (" , ", "MRC_PLANES: no address")]
)
def test_wrong_addresses_are_named(planes: str, said: str) -> None:
    done = run(["ibv_devinfo"], MRC_PLANES=planes)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.needs("ib_write_bw")
def test_a_program_sees_an_error_that_was_ordered() -> None:
    with pytest.raises(AssertionError, match=r"Failed status|Completion with error"):
        pair("ib_write_bw", "-n", "500", MRC_FAIL_AFTER="100")


@pytest.mark.needs("ib_write_bw")
@pytest.mark.skipif(Path("/dev/infiniband/rdma_cm").exists(), reason="this kernel has one")
def test_a_program_that_wants_the_connection_manager_hears_that_there_is_none() -> None:
    done = run(["ib_write_bw", "-R", "-p", str(free_port())], timeout=20)
    assert done.returncode != 0
    assert "mrc: RDMA CM: not offered" in done.stderr


def test_a_program_that_is_linked_in_the_wrong_order_hears_it(tmp_path: Path) -> None:
    source, lib = tmp_path / "count.c", library()
    source.write_text(
        "#include <infiniband/verbs.h>\n#include <mrc.h>\n"
        "int main(void) { int n = 0; ibv_get_device_list(&n); return mrc_library_version() == NULL ? 9 : n; }\n"
    )
    for order, devices in ((("-libverbs", str(lib)), 0), ((str(lib), "-libverbs"), 1)):
        words = [
            "cc",
            str(source),
            f"-I{ROOT / 'native/include'}",
            "-o",
            str(tmp_path / "count"),
            "-Wl,--no-as-needed",
            *order,
        ]
        subprocess.run([*words, f"-Wl,-rpath,{lib.parent}"], check=True)
        done = run([str(tmp_path / "count")], LD_PRELOAD="")
        assert done.returncode >= devices
        assert ("libibverbs comes before libmrc" in done.stderr) == (devices == 0)
