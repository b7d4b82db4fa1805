"""`mrc perf` as two processes."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from harness import strangers
from openmrc.errors import PeerError
from openmrc.live.attributes import USER_TIMEOUT_S
from openmrc.programs.endpoint.opening import EndpointOptions
from openmrc.programs.perf.report import PerfReport, PerfResult
from openmrc.programs.perf.run import PerfCall
from openmrc.programs.perf.words import PerfPlan
from tests.programs.in_process import run_here
from tests.programs.processes import finish, listening, mrc, run


def decoded(line: str) -> PerfReport:
    return msgspec.json.decode(line, type=PerfReport)


def test_bandwidth_both_ways_with_immediates_on_two_queue_pairs() -> None:
    code, said, complaints = run(
        "perf", "--loopback", "--planes", 2, "-s", "64K", "-n", 300, "-q", 2, "-b", "--imm", "-w", 10,
        "--report_gbits", "--json",
    )  # fmt: skip
    assert code == 0, complaints
    report = decoded(said)
    result = report.results
    assert isinstance(result, PerfResult)
    assert (result.MsgSize, result.n_iterations) == (65536, 2 * 2 * 300)
    assert isinstance(result.BW_average, float)
    assert isinstance(result.BW_peak, float)
    assert 0 < result.BW_average <= result.BW_peak
    assert result.t_min is UNSET
    assert [each.sender for each in report.mrc.directions] == ["client", "server"]
    assert [each.bytes for each in report.mrc.directions] == [600 * 65536] * 2
    assert abs(sum(plane.share for plane in report.mrc.planes) - 1) < 0.001
    assert report.test_info.Number_of_qps == 2


@pytest.mark.parametrize("timeout", [0.1, 5.0, 30.0, 600.0, math.inf])
def test_the_user_timeout_outlasts_the_time_out(timeout: float) -> None:
    call: Any = SimpleNamespace(endpoint=EndpointOptions(mtu=1024), plan=PerfPlan(sizes=[1]), timeout=timeout)
    asked = PerfCall.asked.__get__(call)
    assert (asked.path_mtu, asked.user_timeout) == (1024, max(timeout, USER_TIMEOUT_S))


def test_a_sweep_of_sizes_is_a_list() -> None:
    code, said, complaints = run_here(
        "perf", "--loopback", "--planes", 1, "-a", "-s", "4K", "--min-size", "1K", "-n", 50, "--json"
    )
    assert code == 0, complaints
    results = decoded(said).results
    assert isinstance(results, list)
    assert [each.MsgSize for each in results] == [1024, 2048, 4096]


def test_latency_in_order_of_size_and_with_columns_of_perftest() -> None:
    code, said, complaints = run_here("perf", "--loopback", "--planes", 2, "--lat", "-s", 8, "-n", 200)
    assert code == 0, complaints
    header, line = said.splitlines()[:2]
    assert header.split() == [
        "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]", "t_stdev[usec]",
        "99%[usec]", "99.9%[usec]",
    ]  # fmt: skip
    size, count, least, most, typical, _, _, p99, p999 = map(float, line.split())
    assert (size, count) == (8, 200)
    assert 0 < least <= typical <= p99 <= p999 <= most


def test_a_client_impairs_both_ends_and_sees_what_was_sent_again() -> None:
    with listening("perf", "--planes", 2, "--json") as (server, port):
        code, said, complaints = run_here(
            "perf", "127.0.0.1", "-p", port, "--planes", 2, "-s", "1M", "-n", 20, "--impair", "loss: 1%", "--json"
        )
        served = finish(server)
    assert (code, served[0]) == (0, 0), complaints + served[2]
    assert decoded(said).mrc.retransmitted_packets > 0
    assert decoded(said).mrc.faults == "loss: 1%"
    assert decoded(served[1]).mrc.role == "server"


def test_a_client_that_does_not_fit_is_told_both_values_and_the_next_one_is_served() -> None:
    with listening("perf", "--planes", 2, "-m", 1024, "--json") as (server, port):
        code, said, _ = run_here("perf", "127.0.0.1", "-p", port, "--planes", 4, "-m", 1024, "--json")
        assert code == 1
        assert "plane count: here 4, there 2" in (decoded(said).mrc.error or "")
        code, said, complaints = run_here(
            "perf", "127.0.0.1", "-p", port, "--planes", 2, "-m", 1024, "-n", 10, "--json"
        )
        assert code == 0, complaints
        served = finish(server)
    assert served[0] == 0
    assert "plane count: here 2, there 4" in served[2]


STRANGERS: dict[str, Callable[[int], object]] = {
    "resets the connection": strangers.reset,
    "hangs up": strangers.vanish,
    "speaks HTTP": lambda port: strangers.say(port, b"GET / HTTP/1.1\r\n\r\n"),
    "names too few source ports": lambda port: turned_away(port, source_ports=[]),
    "names 3,000 source ports": lambda port: turned_away(port, source_ports=[list(range(1, 3001))]),
    "names a port of 70 bits": lambda port: turned_away(port, source_ports=[[1 << 70]]),
    "offers no memory": lambda port: turned_away(port, regions=[]),
    "is another program": lambda port: turned_away(port, note={"role": "another", "version": 1, "plan": None}),
    "has no note": lambda port: turned_away(port),
    "has another MTU": lambda port: turned_away(port, path_mtu=256),
}


def turned_away(port: int, **changes: Any) -> None:
    channel = strangers.greet(port, strangers.offer(**changes))
    with contextlib.suppress(PeerError):
        while channel.hear(timeout=20) != "ready":
            continue
        channel.tell("ready")
        channel.hear(timeout=20)
    channel.close()


def test_a_stranger_is_turned_away_and_the_next_client_is_served() -> None:
    with listening("perf", "--planes", 1, "--json") as (server, port):
        for stranger in STRANGERS.values():
            stranger(port)
            assert server.poll() is None
        with strangers.silent(port, 10):
            code, said, complaints = run_here(
                "perf", "127.0.0.1", "-p", port, "--planes", 1, "-n", 10, "-q", 2, "--json"
            )
        served = finish(server)
    assert (code, served[0]) == (0, 0), complaints + served[2]
    assert decoded(said).mrc.ok
    assert "'another'" in served[2]


# What is stopped, how, and the exit codes of both ends afterwards.
STOPS = {
    "client killed": ("client", signal.SIGKILL, -9, 1),
    "server killed": ("server", signal.SIGKILL, 1, -9),
    "SIGTERM at the server": ("server", signal.SIGTERM, 1, 143),
}


@pytest.mark.parametrize("stop", STOPS)
def test_when_one_end_stops_the_other_says_so(stop: str) -> None:
    who, how, client_code, server_code = STOPS[stop]
    with listening("perf", "--planes", 1, "--json") as (server, port):
        client = mrc("perf", "127.0.0.1", "-p", port, "--planes", 1, "-D", 60, "--json")
        assert client.stderr is not None
        assert any(b"Gb/s" in line for line in client.stderr)  # it is moving
        (client if who == "client" else server).send_signal(how)
        ends = finish(client), finish(server)
    assert (ends[0][0], ends[1][0]) == (client_code, server_code), ends
    error = decoded((ends[1] if who == "client" else ends[0])[1]).mrc.error or ""
    assert ("packets" if how == signal.SIGKILL else "gave up") in error  # its last progress, or its reason
    assert "127.0." in error


def test_a_capture_is_reported_when_the_command_ends(tmp_path: Path) -> None:
    file = tmp_path / "sent.pcapng"
    code, _, complaints = run("perf", "--loopback", "--planes", 1, "-n", 10, "--capture", file)
    assert code == 0
    assert f"{file}: all " in complaints


def test_ctrl_c_ends_an_endless_measurement_in_good_order() -> None:
    process = mrc("perf", "--loopback", "--planes", 2, "--run_infinitely", "--json", process_group=0)
    assert process.stderr is not None
    assert any(b" Gb/s  retransmitted " in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    code, said, _ = finish(process)
    assert code == 0
    assert decoded(said).mrc.ok


def test_a_timed_run_of_large_writes_ends_soon_after_its_time() -> None:
    began = time.monotonic()
    code, said, complaints = run_here("perf", "--loopback", "--planes", 2, "-s", "64M", "-D", 2, "--json", "--quiet")
    assert code == 0, complaints
    assert decoded(said).mrc.directions[0].seconds < 10
    assert time.monotonic() - began < 60


def test_intervals_reach_to_the_end_of_a_run_though_a_plane_is_lost() -> None:
    code, said, complaints = run_here(
        "perf", "--loopback", "--planes", 2, "-s", "64K", "-D", 2.5, "--json", "--impair", "at: 1s, down: plane 1"
    )
    assert code == 0, complaints
    report = decoded(said)
    assert report.mrc.intervals[0].start == 0
    assert all(
        one.end == other.start for one, other in zip(report.mrc.intervals, report.mrc.intervals[1:], strict=False)
    )
    assert report.mrc.intervals[-1].end >= report.mrc.directions[0].seconds - 0.1


def test_an_infinite_time_out_is_a_long_one() -> None:
    code, said, complaints = run_here("perf", "--loopback", "--planes", 1, "-n", 10, "--timeout", "inf", "--json")
    assert code == 0, complaints
    assert decoded(said).mrc.ok
