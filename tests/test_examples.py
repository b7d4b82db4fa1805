"""The examples run as they are."""

import ast
import hashlib
import html
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.free_port import free_port

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


def test_the_notebook_runs_cell_by_cell() -> None:
    """As a kernel runs it: one namespace, and the last expression of a cell is shown."""
    cells = json.loads((FOLDER / "simulation.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown: list[Any] = []
    for cell in cells:
        if cell["cell_type"] == "code":
            *statements, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr)
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    simulation, flows, steps, ratio = shown
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" .*></iframe>', simulation._repr_html_())
    assert frame is not None
    screen = html.unescape(frame[1])
    assert f"{simulation.summary['flows']:,} of {simulation.summary['flows']:,}" in screen
    assert screen.count("<svg") == 2
    assert (flows.height, steps.height) == (5, 8)
    assert ratio == round(steps["took_us"].quantile(0.99) / names["calm"].steps["took_us"].quantile(0.99), 2) > 1


SPOILT = "loss: 1%, corruption: 0.5%, duplicate: 0.5%, reorder: 0.5%"


@pytest.mark.parametrize("size", [0, 1, 40_000_001])  # bytes; the last goes round the ring of 32 MiB
def test_a_file_arrives_whole_though_packets_are_lost_spoilt_doubled_and_overtaken(size: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(random.Random(size).randbytes(size))
    received, sent = transfer(tmp_path / "file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "file").read_bytes()
    digest = hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()
    assert received.strip().endswith(digest)
    assert sent.strip().endswith(digest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "file"]


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"what was sent")
    (tmp_path / "copy").write_bytes(b"mine")
    with pytest.raises(AssertionError, match="FileExistsError"):
        transfer(tmp_path / "file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "file"]


def transfer(file: Path, copy: Path) -> tuple[str, str]:
    """Send a file over planes that spoil packets at both ends; return what the receiver and the sender print."""
    port = str(free_port())
    command = [sys.executable, str(FOLDER / "send_file.py"), "--port", port, "--faults", SPOILT]
    with subprocess.Popen([*command, "receive", str(copy)], stdout=-1, stderr=-1, text=True) as receiver:
        try:
            sender = subprocess.run(
                [*command, "send", str(file), "127.0.0.1"], capture_output=True, text=True, timeout=SECONDS
            )
            received, complaints = receiver.communicate(timeout=SECONDS)
        finally:
            receiver.kill()
    assert (sender.returncode, receiver.returncode) == (0, 0), sender.stderr + complaints
    return received, sender.stdout


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
