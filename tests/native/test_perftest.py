"""perftest with the options of `perftest.toml`: a table of figures, or a refusal by name."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.free_port import free_port
from tests.native.building import environment, run
from tests.native.test_verbs_device import pair, rows

pytestmark = pytest.mark.needs("ib_write_bw", "cc", "verbs.h", "jit")
SIZES = 23  # of -a
LONGEST = 240  # s, on a busy machine: both ends spin


class OptionSet(NamedTuple):
    """A program of perftest with its options."""

    program: str
    options: tuple[str, ...]
    emulate: str
    in_order: str
    refused: str = ""


def option_sets() -> Iterator[object]:
    for group in tomllib.loads(Path(__file__).with_name("perftest.toml").read_text("utf-8"))["groups"]:
        program, refused = group["program"], group.get("refused", {})
        emulate, in_order = group.get("emulate", ""), group.get("in_order", "")
        for text in (*group.get("quick", ()), *group.get("runs", ()), *refused):
            words = text.split()
            if not {"-n", "-D"} & set(words):
                words += ["-n", "5"]
            marks = () if text in group.get("quick", ()) else pytest.mark.exhaustive
            each = OptionSet(program, tuple(words), emulate, in_order, refused.get(text, ""))
            yield pytest.param(
                each, marks=marks, id=f"{program} {text}{' refused' * bool(each.refused)}".replace("  ", " ")
            )


SETS = list(option_sets())


def test_there_are_a_hundred() -> None:
    assert len(SETS) >= 100


@pytest.mark.parametrize("each", SETS)
def test_options(each: OptionSet) -> None:
    if each.refused:
        assert each.refused in refusal_of(each)
    else:
        client, _ = pair(
            each.program, *each.options, timeout=LONGEST, MRC_EMULATE=each.emulate, MRC_IN_ORDER=each.in_order
        )
        assert len(rows(client)) == (SIZES if "-a" in each.options else 1)


def refusal_of(each: OptionSet) -> str:
    """Return what both ends said; one of them ended with an error. The other may wait for it, and is killed."""
    command = [each.program, "-p", str(free_port()), *each.options]
    settings = environment(MRC_EMULATE=each.emulate)
    server = subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for _ in range(100):  # the server may not listen yet
            client = run([*command, "127.0.0.1"], LONGEST, MRC_EMULATE=each.emulate)
            if "Couldn't connect" not in client.stdout + client.stderr or server.poll() is not None:
                break
    finally:
        server.kill()
        said = server.communicate()[0]
    assert client.returncode != 0
    return said + client.stdout + client.stderr
