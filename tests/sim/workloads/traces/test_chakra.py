"""Chakra files: what is wrong is named by file and node, and no bytes crash the reader."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import NOWHERE, WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.trace import Trace
from openmrc.sim.workloads.traces import chakra
from openmrc.units import PS_PER_US
from tests.sim.workloads.traces import chakra_writer as et

HOSTS = WorkloadHosts(16)


def planned(prefix: Path, **parameters: object) -> WorkloadGraph:
    return Trace(file=str(prefix), **parameters).plan(HOSTS, seed=1)  # type: ignore[arg-type]


def sent(made: WorkloadGraph) -> list[tuple[int, int, int]]:
    nodes = made.nodes()
    moves = nodes.destination != NOWHERE
    columns = (nodes.source[moves], nodes.destination[moves], nodes.size[moves])
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def refusal(prefix: Path, **parameters: object) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(prefix, **parameters)
    return str(caught.value)


@pytest.mark.parametrize("packed", [True, False])
def test_dependencies_are_read_packed_and_one_by_one(tmp_path: Path, packed: bool) -> None:
    nodes = [et.node(1, et.COMPUTE, micros=3), et.node(2, et.COMPUTE, (1, 3), 5, packed=packed), et.node(3, et.COMPUTE)]
    made = planned(et.write(tmp_path, [nodes]))
    assert made.nodes().length.tolist() == [3 * PS_PER_US, 0, 5 * PS_PER_US]
    before, after, _ = made.edges()
    assert {(0, 2), (1, 2)} <= set(zip(before.tolist(), after.tolist(), strict=True))


def test_an_all_gather_moves_what_each_rank_gives_and_an_all_to_all_its_share(tmp_path: Path) -> None:
    nodes = [et.collective(0, et.ALL_GATHER, 1000), et.collective(1, et.ALL_TO_ALL, 4000, (0,))]
    moved = sent(planned(et.write(tmp_path, [nodes] * 4)))
    pairs = [(source, target) for source in range(4) for target in range(4) if source != target]
    assert moved == sorted((*pair, 1000) for pair in pairs for _ in range(2))


def test_a_process_group_is_looked_up_by_its_name(tmp_path: Path) -> None:
    ranks = [[et.collective(0, et.ALL_GATHER, 100, pg_name=f"tp{rank // 2}")] for rank in range(4)]
    groups = tmp_path / "groups.json"
    groups.write_text('{"tp0": [0, 1], "tp1": [2, 3]}')
    prefix = et.write(tmp_path, ranks)
    assert sent(planned(prefix, groups=str(groups))) == [(0, 1, 100), (1, 0, 100), (2, 3, 100), (3, 2, 100)]
    assert "trace.0.et: node 0 (collective 0): process group 'tp0' is unknown" in refusal(prefix)


def test_involved_dimensions_need_the_grid_of_ranks(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.collective(0, et.ALL_GATHER, 100, involved_dim=[False, True])]] * 4)
    assert sent(planned(prefix, dimensions=(2, 2))) == [(0, 2, 100), (1, 3, 100), (2, 0, 100), (3, 1, 100)]
    assert "involved_dim [0, 1] needs `dimensions`" in refusal(prefix)


def test_operations_without_a_duration_need_the_speed_of_a_rank(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.node(7, et.COMPUTE, attributes=et.attribute("num_ops", 2 * 10**9))]])
    assert planned(prefix, tflops=100.0).nodes().length[0] == 20 * PS_PER_US
    assert "node 7: 2000000000 operations and no duration; give tflops" in refusal(prefix)


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.collective(0, et.BARRIER, 0)]] * 4)
    (tmp_path / "trace.2.et").unlink()
    assert refusal(prefix) == f"{prefix}.2.et: rank 2 is missing; the last file is of rank 3"


def test_a_rank_missing_in_a_collective_is_named(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.collective(4, et.ALL_REDUCE, 100)], []])
    (tmp_path / "trace.1.et").write_bytes(et.file_of([et.node(0, et.COMPUTE, micros=1)]))
    assert "trace.0.et: node 4 (collective 4): rank 1 is missing: it has 0 collectives" in refusal(prefix)


def test_collectives_that_differ_between_ranks_are_named(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.collective(4, et.ALL_REDUCE, 100)], [et.collective(9, et.ALL_REDUCE, 200)]])
    assert "trace.1.et: node 9 (collective 9): size 200, but 100 at" in refusal(prefix)


def test_a_message_without_its_other_half_is_named(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.send(3, 1, 100, tag=5)], [et.receive(8, 0, 100, tag=6)]])
    assert "trace.0.et: node 3: no receive matches it: from rank 0 to rank 1, tag 5" in refusal(prefix)
    prefix = et.write(tmp_path, [[et.node(0, et.COMPUTE)], [et.receive(8, 0, 100)]], name="other")
    assert "other.1.et: node 8: no send matches it: from rank 0 to rank 1, tag 0" in refusal(prefix)


def test_a_cycle_is_named_across_ranks(tmp_path: Path) -> None:
    first = [et.receive(1, 1, 8), et.send(2, 1, 8, (1,))]
    second = [et.receive(5, 0, 8), et.send(6, 0, 8, (5,))]
    text = refusal(et.write(tmp_path, [first, second]))
    assert "2 operations wait for each other in a cycle" in text
    assert "trace.0.et: node 2" in text
    assert "trace.1.et: node 6" in text


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([et.node(1, et.COMPUTE), et.node(1, et.COMPUTE)], "node 1: duplicate identity"),
        ([et.node(1, et.COMPUTE, (9,))], "node 1: waits for node 9, which does not exist"),
        ([et.node(1, 55)], "node 1: node type 55 is unknown (schema version 0.0.4)"),
        ([et.node(1, 0)], "node 1: node type 0 is unknown"),
        ([et.collective(1, 77, 8)], "comm_type 77; expected 0 to 9"),
        ([et.send(1, 12, 8)], "comm_dst is 12; the trace has ranks 0..0"),
        ([et.collective(1, et.ALL_REDUCE, -1)], "comm_size is -1; expected a number, at least 0"),
        ([et.node(1, et.COMPUTE, micros=1 << 62)], "message 1: node 1 takes"),
    ],
)
def test_what_is_wrong_with_a_node_is_named(tmp_path: Path, nodes: list[bytes], why: str) -> None:
    assert why in refusal(et.write(tmp_path, [nodes]))


def test_a_length_beyond_the_file_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.0.et"
    path.write_bytes(et.varint(1 << 60))
    assert "a message of 1,152,921,504,606,846,976 bytes" in refusal(path)
    path.write_bytes(et.varint(1 << 20) + b"abc")
    assert "message 0: ends within a message: 3 of 1,048,576 bytes" in refusal(path)


SOUND = et.file_of(
    [
        et.node(1, et.COMPUTE, micros=3, name="compute"),
        et.collective(2, et.ALL_REDUCE, 1 << 20, (1,), pg_name="0", involved_dim=[True, True]),
        et.collective(3, et.BROADCAST, 4096, (2,)),
        et.send(4, 0, 100, (3,)),
    ]
)


def read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "fuzz.0.et").write_bytes(data)
    try:
        planned(tmp_path / "fuzz.0.et")
    except ConfigError as error:
        assert "fuzz.0.et" in str(error)  # noqa: PT017  either ends well or with a named error


def test_no_truncation_crashes_the_reader(tmp_path: Path) -> None:
    for length in range(len(SOUND)):
        read(tmp_path, SOUND[:length])


def test_no_mutation_crashes_the_reader(tmp_path: Path) -> None:
    draw = random.Random(1)
    for _ in range(1500):
        data = bytearray(SOUND)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])
        read(tmp_path, bytes(data))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200))
def test_no_bytes_crash_the_reader(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    read(tmp_path_factory.mktemp("fuzz"), data)


@settings(max_examples=60, deadline=None)
@given(nodes=st.lists(st.binary(max_size=40), max_size=6))
def test_no_framed_bytes_crash_the_reader(nodes: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    read(tmp_path_factory.mktemp("fuzz"), et.file_of(nodes))


def test_a_large_file_is_read_as_a_stream(tmp_path: Path) -> None:
    nodes = [et.node(at, et.COMPUTE, (at - 1,) if at else (), 1, "a" * 60) for at in range(20_000)]
    operations = chakra.read(et.write(tmp_path, [nodes]))
    assert np.array(operations.length).sum() == 20_000 * PS_PER_US
