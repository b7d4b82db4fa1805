"""The examples run as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
SECONDS = 120


@pytest.mark.parametrize(
    ("name", "served", "said"),
    [
        ("write_memory.py", "immediate 7 and b'hello'", "SUCCESS"),
        ("numpy_arrays.py", "64 rows of 65536, the sum of all is 4194304", "64 rows written"),
    ],
)
def test_an_example_of_two_processes_runs(name: str, served: str, said: str) -> None:
    command = [sys.executable, str(FOLDER / name)]
    server = subprocess.Popen([*command, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.stdout.strip() == said, done.stderr
        assert server.communicate(timeout=SECONDS)[0].strip() == served
    finally:
        server.kill()
        server.communicate()


@pytest.mark.needs("torch", "sklearn", "jit")
@pytest.mark.parametrize("name", ["train_ddp.py", "train_fsdp.py"])
def test_a_training_example_goes_through_an_outage_and_draws_it(name: str, tmp_path: Path) -> None:
    picture = tmp_path / "training.svg"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    outage = "at: 0s, for: 10s, every: 11s, times: 2, down: plane 1"
    done = subprocess.run(
        [*command, str(FOLDER / name), "--steps", "5", "--faults", outage, "--out", str(picture)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "MRC_PLANES": "2", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert picture.read_text().count("plane 1") == 1
    first, last = re.findall(r"^(?:step 0:|last) loss (\d+\.\d+)", done.stdout, re.MULTILINE)
    assert float(last) < float(first)


def test_the_asyncio_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "asyncio_writes.py")], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout.strip() == "immediates [1, 2, 3]"


def test_the_example_of_the_python_api_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "compare_planes.py")], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert "<Simulation 'scenario': mrc, 8064 of 8064 flows>" in done.stdout
    assert "50.0  ┆ down plane 3" in done.stdout
    last = done.stdout.rpartition("shape: ")[2]
    assert last.startswith("(4, 4)")  # with and without the fault, on 4 and on 8 planes
    assert "packets.retransmitted" in last
