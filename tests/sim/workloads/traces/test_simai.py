"""SimAI's workload text: groups, phases of a step, and what is refused with file and line."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import NOWHERE, WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.trace import Trace
from openmrc.sim.workloads.traces.simai import DATA, EXPERT, EXPERT_DATA, TENSOR, read

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 8 ga: 1 all_gpus: 8 pp_comm: 0.0"
ROW = "attention -1 500 ALLGATHER 1000 300 REDUCESCATTER 1000 200 ALLREDUCE 4000 100"
EXPERTS = "moe\t-1\t10\tALLTOALL_EP\t800\t10\tNONE\t5\t10\tALLGATHER_DP_EP\t600\t0"
SOUND = f"{HEAD}\n2\n{ROW}\n{EXPERTS}\n"


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "test.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def planned(tmp_path: Path, text: str | bytes, **parameters: object) -> WorkloadGraph:
    return Trace(file=str(write(tmp_path, text)), **parameters).plan(WorkloadHosts(16), seed=1)  # type: ignore[arg-type]


def test_groups_are_neighbours_for_tensors_and_strided_for_the_rest(tmp_path: Path) -> None:
    step = read(write(tmp_path, SOUND))
    assert step.groups(TENSOR).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert step.groups(DATA).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert step.groups(EXPERT).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert step.groups(EXPERT_DATA).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("kind", [TENSOR, DATA, EXPERT, EXPERT_DATA])
def test_every_rank_is_in_one_group_of_each_kind(tmp_path: Path, kind: str) -> None:
    step = read(write(tmp_path, SOUND.replace("pp: 1", "pp: 2")))
    assert sorted(step.groups(kind).ravel().tolist()) == list(range(8))


def test_a_step_moves_what_its_layers_say(tmp_path: Path) -> None:
    made = planned(tmp_path, SOUND, algorithm="ring")
    nodes = made.nodes()
    by_label = {name: int(nodes.size[nodes.label == at].sum()) for at, name in enumerate(made.labels) if "," in name}
    assert by_label["attention: forward, all_gather"] == 8 * 500  # each rank gives half of the vector to one other
    assert by_label["attention: input gradient, reduce_scatter"] == 8 * 500
    assert by_label["attention: weight gradient, all_reduce"] == 8 * 2 * 3 * 1000
    assert by_label["moe: forward, all_to_all"] == 8 * 400
    assert by_label["moe: weight gradient, all_gather"] == 8 * 300
    assert len(made.marks["step"]) == 1


@pytest.mark.parametrize(("tensor", "expert"), [(1, 4), (4, 1), (1, 1), (1, 8)])
def test_experts_need_no_ranks_that_share_tensors(tmp_path: Path, tensor: int, expert: int) -> None:
    """SimAI 298 and 182: every rank gives each of the others in its group of experts its share."""
    text = SOUND.replace("NPU_group: 2 ep: 2", f"NPU_group: {tensor} ep: {expert}")
    made = planned(tmp_path, text)
    nodes = made.nodes()
    sent = int(nodes.size[nodes.label == made.labels.index("moe: forward, all_to_all")].sum()) if expert > 1 else 0
    assert sent == 8 * 800 * (expert - 1) // expert
    assert read(write(tmp_path, text)).groups(EXPERT).shape == (8 // expert, expert)


def test_the_weight_gradient_goes_on_behind_the_input_gradient(tmp_path: Path) -> None:
    made = planned(tmp_path, f"{HEAD}\n1\n{ROW}\n")
    nodes, (before, after, _) = made.nodes(), made.edges()
    inputs = made.labels.index("attention: input gradient")
    reduced = [at for at, name in enumerate(made.labels) if name == "attention: weight gradient, all_reduce"]
    into = before[nodes.label[after] == inputs]
    assert not set(nodes.label[into].tolist()) & set(reduced)


def test_only_the_first_layers_are_read_if_so_said(tmp_path: Path) -> None:
    assert "moe: forward" not in planned(tmp_path, SOUND, layers=1).labels


def test_computations_scale(tmp_path: Path) -> None:
    whole, half = (planned(tmp_path, SOUND, compute_scale=scale).nodes().length.sum() for scale in (1.0, 0.5))
    assert whole == 2 * half == 8 * (500 + 300 + 200 + 100 + 30) * 1000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD ep: 1\n1\n", "1: all_gpus: missing in the first line: expected a number"),
        (HEAD.replace("ep: 2", "ep: 3") + "\n1\n", "1: all_gpus: 8 is not a multiple of model_parallel_NPU_group 2"),
        (HEAD + "\nmany\n", "2: 'many': expected the number of layers"),
        (HEAD + f"\n3\n{ROW}\n", "3: the file ends after 1 of 3 layers"),
        (HEAD + "\n1\na b c\n", "3: 3 columns; expected 12"),
        (HEAD + "\n1\n" + ROW.replace("ALLREDUCE", "GOSSIP"), "3: weight gradient: collective 'GOSSIP'; expected"),
        (HEAD + "\n1\n" + ROW.replace("4000", "-4"), "3: weight gradient: '-4': expected a number of bytes"),
        (HEAD + "\n1\n" + ROW.replace("500", "1.5"), "3: forward: '1.5': expected a compute time in ns"),
        (HEAD.replace("all_gpus: 8", "all_gpus: 64") + f"\n1\n{ROW}\n", " 64 ranks with 1 per NIC need 64 NICs"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, text)
    assert f"test.txt:{why}" in str(caught.value)


def test_no_truncation_or_mutation_crashes_the_reader(tmp_path: Path) -> None:
    draw, sound = random.Random(3), SOUND.encode()
    cases = [sound[:length] for length in range(len(sound))]
    for _ in range(800):
        data = bytearray(sound)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.choice(b"0123456789 \n:AEPN\xff-")
        cases.append(bytes(data))
    for case in cases:
        try:
            planned(tmp_path, case, format="simai", layers=50)
        except ConfigError as error:
            assert "test.txt" in str(error)  # noqa: PT017


def test_messages_stay_within_hosts(tmp_path: Path) -> None:
    nodes = planned(tmp_path, SOUND, ranks_per_nic=2).nodes()
    moves = nodes.destination != NOWHERE
    assert np.unique(nodes.source[moves]).tolist() == [0, 1, 2, 3]
