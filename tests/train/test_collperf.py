import json
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.programs.training.measurement import (
    COLLECTIVES,
    DTYPES,
    OPS,
    CollperfSettings,
    MrcCollectives,
    check_settings,
    measure,
    sizes,
)
from openmrc.train.group import Group
from tests.train.ranks import run


def collperf(*arguments: str, code: int = 0) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    command = [sys.executable, "-m", "openmrc.programs.main", "collperf", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_ctrl_c_prints_one_line() -> None:
    command = [
        sys.executable,
        "-m",
        "openmrc.programs.main",
        "collperf",
        "all_reduce",
        "-b",
        "1K",
        "-e",
        "1K",
        "-i",
        "0",
    ]
    with subprocess.Popen([*command, "-n", "100000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None
        while b"(GB/s)" not in job.stdout.readline():  # the last line of the head: the ranks are connecting, or further
            pass
        job.send_signal(signal.SIGINT)
        _, said = job.communicate(timeout=120)
    assert [line for line in said.decode().splitlines() if "compil" not in line] == ["mrc: interrupted"]
    assert job.returncode == 130


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_measured_and_right(collective: Any) -> None:
    def program(group: Group) -> Any:
        settings = CollperfSettings(collective=collective, iterations=1)
        return [measure(MrcCollectives(group), settings, size) for size in (0, 1200, 1 << 20)]

    for line in run(3, program)[0]:
        assert line.out_of_place.wrong == line.in_place.wrong == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_and_operation_is_right(dtype: Any) -> None:
    def program(group: Group) -> Any:
        ops = [op for op in OPS if op != "avg" or dtype in ("half", "float", "double", "bfloat16")]
        return [
            measure(
                MrcCollectives(group),
                CollperfSettings(collective="all_reduce", iterations=1, op=op, dtype=dtype),
                30_000,
            )
            for op in ops
        ]

    assert all(line.in_place.wrong == 0 for line in run(2, program)[0])


def test_wrong_results_are_counted() -> None:
    class Broken(MrcCollectives):
        def call(self, name: Any, given: Any, out: Any, settings: Any, asynchronous: Any) -> Any:
            done = super().call(name, given, out, settings, asynchronous)
            out[::10] = 77
            return done

    line = run(2, lambda group: measure(Broken(group), CollperfSettings(collective="all_reduce", iterations=1), 4000))[
        0
    ]
    assert line.out_of_place.wrong == 2 * 100


def test_bus_bandwidth_has_the_factors_of_nccl_tests() -> None:
    def program(group: Group) -> Any:
        settings = {
            name: CollperfSettings(collective=name, iterations=1) for name in ("all_reduce", "all_gather", "broadcast")
        }
        return {name: measure(MrcCollectives(group), each, 60_000).in_place for name, each in settings.items()}

    results = run(3, program)[0]
    for name, factor in (("all_reduce", 4 / 3), ("all_gather", 2 / 3), ("broadcast", 1)):
        assert np.isclose(results[name].busbw, factor * results[name].algbw)


def test_the_command_prints_the_columns_or_json() -> None:
    arguments = [
        "all_reduce",
        "-b",
        "8",
        "-e",
        "32K",
        "-f",
        "64",
        "-n",
        "2",
        "--planes",
        "2",
        "-d",
        "double",
        "-o",
        "max",
    ]
    printed = collperf(*arguments)
    rows = [line.split() for line in printed.splitlines() if line and not line.startswith("#")]
    assert [row[:5] for row in rows] == [
        ["8", "1", "double", "max", "-1"],
        ["512", "64", "double", "max", "-1"],
        ["32768", "4096", "double", "max", "-1"],
    ]
    assert all(len(row) == 13 and row[8] == row[12] == "0" for row in rows)
    assert "# Out of bounds values : 0 OK" in printed
    results = json.loads(collperf(*arguments, "--json").splitlines()[-1])["results"]
    assert [each["size"] for each in results] == [8, 512, 32768]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"collective": "allreduce"}, "'allreduce' is not one of all_reduce"),
        ({"collective": "broadcast", "root": 2}, "root 2 is not in 0..1"),
        ({"collective": "all_reduce", "dtype": "fp8"}, "'fp8' is not one of"),
        ({"collective": "all_reduce", "op": "xor"}, "'xor' is not one of"),
        ({"collective": "all_reduce", "least": 10, "most": 5}, "10 to 5 bytes"),
        ({"collective": "all_reduce", "least": 1, "most": 5, "factor": 1}, "-f: 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: Any, says: Any) -> None:
    with pytest.raises(ConfigError, match=says):
        check_settings(CollperfSettings(**settings), 2)


def test_sizes_step_by_factor_or_by_bytes() -> None:
    assert list(sizes(CollperfSettings(collective="x", least=8, most=64, factor=2))) == [8, 16, 32, 64]
    assert list(sizes(CollperfSettings(collective="x", least=10, most=40, step=15))) == [10, 25, 40]
    assert list(sizes(CollperfSettings(collective="x", least=0, most=64, factor=2))) == [0]
