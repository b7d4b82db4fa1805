"""Triggers of `.cm` files become gates, and what could never start is refused."""

from pathlib import Path

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.sim.scenario.matrix import read
from openmrc.sim.scenario.triggers import plan_of
from openmrc.sim.workloads.joined import joined
from openmrc.sim.workloads.traffic import CompletionSide, Traffic


def traffic(folder: Path, *body: str) -> Traffic:
    flows = sum("->" in line for line in body)
    triggers = sum(line.startswith("trigger") for line in body)
    path = folder / "some.cm"
    path.write_text("\n".join(["Nodes 8", f"Connections {flows}", f"Triggers {triggers}", *body, ""]))
    return joined([("matrix", plan_of(read(path)))]).traffic


def released_by(made: Traffic, cause: int) -> list[int]:
    return made.released[made.first_release[cause] : made.first_release[cause + 1]].tolist()


def test_a_oneshot_starts_all_flows_that_name_it(tmp_path: Path) -> None:
    made = traffic(
        tmp_path,
        "0->1 id 1 start 0 size 9 send_done_trigger 5",
        "1->2 id 2 trigger 5 size 9",
        "2->3 id 3 trigger 5 size 9",
        "trigger id 5 oneshot",
    )
    assert released_by(made, 0) == [1, 2], "without a gate between, which would delay them by two link latencies"
    assert made.waits.tolist() == [0, 1, 1]
    assert made.release_side.tolist() == [CompletionSide.SENDER, CompletionSide.SENDER]


def test_a_receivers_trigger_fires_where_the_data_arrived(tmp_path: Path) -> None:
    made = traffic(
        tmp_path, "0->1 id 1 start 0 size 9 recv_done_trigger 5", "1->2 id 2 trigger 5 size 9", "trigger id 5 oneshot"
    )
    assert made.release_side[0] == CompletionSide.RECEIVER


def test_a_barrier_waits_for_its_count(tmp_path: Path) -> None:
    made = traffic(
        tmp_path,
        "0->1 id 1 start 0 size 9 send_done_trigger 5",
        "1->2 id 2 start 0 size 9 send_done_trigger 5",
        "2->3 id 3 trigger 5 size 9",
        "trigger id 5 count 2 barrier",
    )
    assert made.waits.tolist() == [0, 0, 1, 2]


def test_a_multishot_starts_one_flow_an_activation_in_file_order(tmp_path: Path) -> None:
    made = traffic(
        tmp_path, "0->1 id 1 start 0 size 9 send_done_trigger 5", "1->2 id 2 start 0 size 9 send_done_trigger 5",
        "2->3 id 3 trigger 5 size 9", "3->4 id 4 trigger 5 size 9", "trigger id 5 multishot",
    )  # fmt: skip
    first, second = 4, 5  # the gates
    assert (released_by(made, first), released_by(made, second)) == ([2], [3])
    assert made.waits[[first, second]].tolist() == [1, 2]
    assert released_by(made, 0) == [first, second]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (["0->1 id 1 trigger 5 size 9"], "'5', expected an id that"),
        (["0->1 id 1 start 0 size 9 send_done_trigger 5"], "'5', expected an id that"),
        (["0->1 id 1 trigger 5 size 9", "trigger id 5 oneshot"], "no flow activates it"),
        (["0->1 id 1 trigger 5 size 9 send_done_trigger 5", "trigger id 5 oneshot"], "no cycle"),
        (
            [
                "0->1 id 1 trigger 5 size 9 send_done_trigger 6",
                "1->2 id 2 trigger 6 size 9 send_done_trigger 5",
                "trigger id 5 oneshot",
                "trigger id 6 oneshot",
            ],
            "no cycle of triggers (2 flows",
        ),
        (
            [
                "0->1 id 1 start 0 size 9 send_done_trigger 5",
                "1->2 id 2 trigger 5 size 9",
                "trigger id 5 barrier count 2",
            ],
            "at most 1",
        ),
        (
            [
                "0->1 id 1 start 0 size 9 send_done_trigger 5",
                "1->2 id 2 trigger 5 size 9",
                "1->2 id 3 trigger 5 size 9",
                "trigger id 5 multishot",
            ],
            "'2 flows'",
        ),
        (
            [
                "0->1 id 1 start 0 size 9 send_done_trigger 5",
                "0->1 id 2 start 0 size 9 send_done_trigger 5",
                "1->2 id 3 trigger 5 size 9",
                "trigger id 5 oneshot",
            ],
            "activated by 2 flows",
        ),
    ],
)
def test_flows_that_could_never_start_are_refused(tmp_path: Path, body: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        traffic(tmp_path, *body)
    assert says in str(raised.value)
    assert "some.cm:" in str(raised.value)


def test_activations_beyond_a_barriers_count_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "some.cm"
    path.write_text(
        "Nodes 8\nConnections 3\nTriggers 1\n0->1 id 1 start 0 size 9 send_done_trigger 5\n"
        "1->2 id 2 start 0 size 9 send_done_trigger 5\n2->3 id 3 trigger 5 size 9\ntrigger id 5 count 1 barrier\n"
    )
    matrix = read(path)
    plan_of(matrix)
    assert "1 activations more" in matrix.warnings[-1]


def test_flows_of_different_ids_have_connections_of_their_own(tmp_path: Path) -> None:
    made = traffic(tmp_path, "0->1 id 7 start 0 size 9 msg", "0->1 id 7 start 0 size 9 msg", "0->1 id 8 start 0 size 9")
    assert made.connection[0] == made.connection[1] != made.connection[2]
    assert np.array_equal(made.waits, [0, 0, 0])
