"""GOAL schedules: the grammar, what matches what, and what is refused with file and line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import NOWHERE, WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.trace import Trace

SOUND = """num_ranks 3 // a comment
/* another
   over lines */
rank 0 {
l1: calc 100
l2: send 10b to 1 tag 7
l2 requires l1
send 20b to 2
}
rank 1 {  l1 : recv 10b from 0 tag 7 cpu 1 nic 0
  l2: calc 50 cpu 1
  l2 irequires l1 }
rank 2 {
recv 20b from 0
}
"""


def planned(tmp_path: Path, text: str | bytes, **parameters: object) -> WorkloadGraph:
    path = tmp_path / "test.goal"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Trace(file=str(path), **parameters).plan(WorkloadHosts(8), seed=1)  # type: ignore[arg-type]


def test_the_grammar_is_read_with_comments_labels_and_resources(tmp_path: Path) -> None:
    nodes = planned(tmp_path, SOUND).nodes()
    moves = nodes.destination != NOWHERE
    assert nodes.size[moves].tolist() == [20, 10]  # what can go at once is numbered first
    assert sorted(nodes.length[nodes.length > 0].tolist()) == [50_000, 100_000]


def test_the_unit_of_calc_is_an_option(tmp_path: Path) -> None:
    assert planned(tmp_path, SOUND, calc_unit="us").nodes().length.max() == 100_000_000


def test_irequires_waits_for_the_beginning_only(tmp_path: Path) -> None:
    body = "num_ranks 1\nrank 0 {{\na: calc 100\nb: calc 5 cpu 1\nb {} a\n}}\n"
    ends, begins = (planned(tmp_path, body.format(word)) for word in ("requires", "irequires"))
    assert (0, 1) in edges(ends)
    assert (0, 1) not in edges(begins)
    assert len(begins.nodes().length) == 3  # the beginning of `a` is a node of its own


def edges(made: WorkloadGraph) -> set[tuple[int, int]]:
    before, after, _ = made.edges()
    return set(zip(before.tolist(), after.tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rank 0 {\n}\n", "1: rank 0: expected 0..-1, as num_ranks says"),
        ("num_ranks 2\nrank 0 {\n}\n", " rank 1 is missing; num_ranks is 2"),
        ("num_ranks 1\nrank 0 {\nl1: calc x\n}\n", "3: 'l1: calc x': expected"),
        ("num_ranks 1\nrank 0 {\n", "2: the file ends within rank 0"),
        ("num_ranks 2\nrank 0 {\nsend 5b to 1\n}\nrank 1 {\n}\n", "3: rank 0: no receive matches it"),
        ("num_ranks 2\nrank 0 {\nsend 5b to 9\n}\n", "3: rank 9: expected another of 0..1"),
        ("num_ranks 2\nrank 0 {\nrecv 5b from -1\n}\n", "3: receives from any rank"),
        ("num_ranks 1\nrank 0 {\na requires b\n}\n", "3: label 'b' is unknown in rank 0"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na: calc 1\n}\n", "4: duplicate label 'a'"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na requires a\n}\n", " 1 operations wait for each other in a cycle"),
        ("num_ranks 2\nrank 0 {\nsend 9b to 1\n}\nrank 1 {\nrecv 5b from 0\n}\n", "6: rank 1: receives 5 bytes of"),
        ("num_ranks 1\nrank 0 {\n" + "x" * 70_000, "3: a line of more than 65536 bytes"),
        ("num_ranks 1\nrank 0 {\n\xff\n", "3: not UTF-8"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, text.encode("latin-1"))
    assert f"test.goal:{why}" in str(caught.value)


def read(folder: Path, data: bytes) -> None:
    try:
        planned(folder, data, format="goal")
    except ConfigError as error:
        assert "test.goal" in str(error)  # noqa: PT017


def test_no_truncation_or_mutation_crashes_the_reader(tmp_path: Path) -> None:
    draw, sound = random.Random(2), SOUND.encode()
    for length in range(len(sound)):
        read(tmp_path, sound[:length])
    for _ in range(1000):
        data = bytearray(sound)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.choice(b"0123456789 \n{}:lbr\xff-")
        read(tmp_path, bytes(data))


@settings(max_examples=100, deadline=None)
@given(body=st.text(alphabet="lrab019 :{}\n/*-requiscndtofmvg", max_size=120))
def test_no_text_crashes_the_reader(body: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    read(tmp_path_factory.mktemp("fuzz"), f"num_ranks 2\nrank 0 {{\n{body}".encode())
