"""A complaint about a file lists what is allowed and names the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import prepare

FABRIC = "fabric: {name: x, hosts: {count: 16}, planes: [{host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}\n"
WORK = "workloads: [{kind: permutation, size: 2MB}]\n"


def refused(folder: Path, text: str) -> str:
    path = folder / "scenario.yaml"
    path.write_text("name: a\n" + text)
    with pytest.raises(ConfigError) as caught:
        prepare(load(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FABRIC + WORK + "sead: 3\n", ":4: Object contains unknown field `sead`; did you mean seed? Known are name, "),
        (FABRIC + "workloads: [{kind: permutaton, size: 2MB}]\n", "did you mean permutation? Known are "),
        (FABRIC + "workloads:\n  - {kind: incast, size: 2MB, sender: 3}\n",
         "did you mean senders? Known are kind, start, hosts"),
        (FABRIC + WORK + "transport: {name: rocce}\n", "Invalid enum value 'rocce' - at `$.transport.name`; did "
         "you mean roce? Known are datagrams, mrc, roce, roce_adaptive, roce_selective, uet"),
        (FABRIC + "workloads: [{kind: permutation, size: 2 parsecs}]\n", "that is a size such as 2MB, 64KiB or 4096"),
        (FABRIC + WORK + "until: soon\n", "that is a time such as 50us, 1.5ms or 2s"),
        (FABRIC.replace("host_gbps", "host_gpbs") + WORK, "did you mean host_gbps?"),
        (FABRIC + WORK + "faults:\n  - {at: 1us, down: plane 0}\n  - {at: 1s, dwon: plane 1}\n",
         "scenario.yaml:6: faults, step 2: unknown word 'dwon'; did you mean 'down'?"),
        (FABRIC + WORK + "faults:\n  - {at: 1us, down: plane 0}\n  - {at: 1s, down: plane 7}\n",
         "scenario.yaml:6: faults, step 2: 'plane 7': plane 7 does not exist; planes are 0..0"),
        (FABRIC + WORK + "faults:\n  - {at: 1us, down: h33}\n", "scenario.yaml:5: faults, step 1: 'h33'"),
    ],
)  # fmt: skip
def test_a_complaint_says_what_is_allowed(tmp_path: Path, text: str, why: str) -> None:
    assert why in refused(tmp_path, text)
