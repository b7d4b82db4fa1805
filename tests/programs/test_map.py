"""`mrc map plan` and `mrc drain`: what they print for those who read it, and for programs."""

import json
from pathlib import Path

import pytest

from openmrc.planner.response_table import FILE
from tests.programs.in_process import run_here


def test_a_plan_says_in_one_sentence_what_it_tells_apart() -> None:
    _, out, _ = run_here("map", "plan", "gpus-1024")
    assert out.startswith("PROVEN: every fault of one link")
    assert "40,960 (8,192 loop_t0, 16,384 loop_t1, 16,384 one_way)" in out


def test_a_plan_that_leaves_pairs_open_names_them() -> None:
    _, out, _ = run_here("map", "plan", "two-sites")
    assert out.startswith("PROVEN for single faults")
    assert "64 links can be hidden by two others (p0-t1-00>p0-t1-16" in out


def test_a_drain_that_is_tried_says_what_a_step_costs_meanwhile() -> None:
    code, out, _ = run_here("drain", "gpus-1024", "p0-t1-03", "--dry-run", "--json", "--minutes", "10")
    found = json.loads(out)
    assert (code, found["allowed"], [each["model"] for each in found["step"]]) == (0, True, ["dense", "moe"])
    assert all(0 < each["lost_s"] < 600 for each in found["step"])
    waves = json.loads(run_here("drain", "gpus-1024", "--rolling", "--keep", "0.9", "--minutes", "10", "--json")[1])
    assert waves["minutes"] == 10 * len(waves["waves"])
    assert len({switch for wave in waves["waves"] for switch in wave["switches"]}) == 8 * 32
    assert all(wave["proof"]["allowed"] for wave in waves["waves"])


def test_a_drain_is_told_in_a_sentence_with_what_every_pair_keeps() -> None:
    code, out, _ = run_here("drain", "gpus-1024", "p0-t1-03", "--dry-run")
    first, *rest = out.splitlines()
    assert first.startswith("PROVEN without p0-t1-03 (32 cables): every pair of NICs keeps paths; the worst, ")
    assert (code, "  pairs that lose paths    1,015,808 of 1,047,552" in rest) == (0, True)
    assert {line.split()[0] for line in rest if "point_to_point" in line} == {"dense", "moe"}
    code, out, _ = run_here("drain", "lab", "plane 0", "plane 1", "plane 2", "plane 3")
    assert (code, out.splitlines()[0]) == (
        1,
        "REFUSED without plane 0, plane 1, plane 2, plane 3 (128 cables): 240 pairs would lose their last path, "
        "such as h0 to h1.",
    )
    waves = run_here("drain", "gpus-1024", "--rolling", "--keep", "0.9")[1]
    assert waves.startswith("PROVEN: 11 waves, 165 minutes, each T1 out once.")
    assert "and 8 more; --json has all" in waves


def test_what_a_step_costs_is_not_told_for_nics_of_another_rate_until_their_table_is_given(tmp_path: Path) -> None:
    asked = ("drain", "lab", "p0-t1-03", "--dry-run", "--json")
    code, out, _ = run_here(*asked)
    assert (code, json.loads(out)["allowed"]) == (0, True)
    assert json.loads(out)["step_unknown"].startswith("NICs of 4G: the table of responses was measured with 800G")
    code, _, error = run_here(*asked, "--responses", FILE)
    assert (code, "NICs of 4G: the table" in error) == (1, True)
    (tmp_path / "4.json").write_text(json.dumps(json.loads(FILE.read_text()) | {"nic_gbps": 4, "planes": 4}))
    assert [each["model"] for each in json.loads(run_here(*asked, "--responses", tmp_path / "4.json")[1])["step"]]


def test_certificates_for_a_file_say_that_a_folder_is_expected(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    (tmp_path / "file").write_text("in the way")
    code, _, error = run_here("map", "certs", "lab", "--out", tmp_path / "file")
    assert (code, error) == (2, f"mrc: --out: {tmp_path / 'file'} is a file; expected a folder\n")
