"""A scenario runs, is summed up, and leaves a folder that others can read; with the transport that has no feedback."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from openmrc.core import host_memory
from openmrc.errors import ConfigError
from openmrc.programs.main import app
from openmrc.report.folder import write
from openmrc.report.simulation import figure
from openmrc.sim.results.samples import KEPT, LinkSampler
from openmrc.sim.results.summary import SimulationRun, spread, summary
from openmrc.sim.scenario.description import Scenario, Transport, TransportName, load
from openmrc.sim.simulate import Status, simulate
from openmrc.units import PS_PER_US
from tests.sim.small import STEPS

NEEDED = ("flows", "finished", "fct_us", "last_finish_us", "packets", "packet_hops", "setup_s", "wall_s",
          "peak_rss_mb", "seed", "version")  # fmt: skip


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = tmp_path_factory.mktemp("scenario") / "steps.yaml"
    path.write_text(STEPS)
    return load(path)


@pytest.fixture(scope="module")
def run(scenario: Scenario) -> SimulationRun:
    return simulate(scenario)


@pytest.fixture(scope="module")
def reported(run: SimulationRun) -> dict[str, object]:
    return summary(run)


def test_every_flow_is_accounted_for(run: SimulationRun, reported: dict[str, object]) -> None:
    assert reported["flows"] == reported["finished"] == 2 * 30 * 16 + 16
    assert run.is_complete
    assert [each["flows"] for each in reported["workloads"]] == [960, 16]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "what_for"),
    [("mrc", ".* queue pairs with .* EVs"), ("roce", ".* queue pairs"), ("uet", ".* messages with .* packets")],
)
def test_a_run_beyond_the_memory_is_refused_before_it_takes_any(
    scenario: Scenario, name: TransportName, what_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = msgspec.structs.replace(scenario, transport=Transport(name=name))
    asked: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(host_memory, "require", lambda tables, _what: asked.append(sum(each.nbytes for each in tables)))
        simulate(chosen)
    network, transport = asked
    for left, what in (([network - 1], "128 links and 16 NICs"), ([network, transport - 1], what_for)):
        available = iter(left)
        monkeypatch.setattr(host_memory, "available_bytes", lambda available=available: next(available))
        with pytest.raises(MemoryError, match=f"at least .* GB are needed for {what}, .* are available"):
            simulate(chosen)


def test_the_summary_has_what_programs_rely_on(reported: dict[str, object]) -> None:
    assert set(NEEDED) <= set(reported)
    assert set(reported["fct_us"]) == {"mean", "p50", "p99", "max"}  # type: ignore[call-overload]
    assert {"new", "retransmitted", "trimmed", "dropped", "ecn_marked"} <= set(reported["packets"])  # type: ignore[call-overload]
    json.dumps(reported)


def test_steps_contain_their_computation_and_end_in_order(run: SimulationRun, reported: dict[str, object]) -> None:
    ends = run.results.finished[run.work.marks["step"]]
    assert (np.diff(ends) > 10 * PS_PER_US).all()
    assert figure(reported, "step_us.each.0") == pytest.approx(int(ends[0]) / PS_PER_US, abs=1e-3)


def test_planes_together_carry_all_payload(run: SimulationRun, reported: dict[str, object]) -> None:
    carried = sum(reported["goodput_gbps"]["plane"]) * run.span / 8e3  # type: ignore[index]
    assert carried == pytest.approx(reported["bytes"], rel=0.05)  # short last packets have the header of whole ones


def test_samples_end_with_the_totals(run: SimulationRun) -> None:
    samples = run.samples
    assert (np.diff(samples.at) > 0).all()
    assert (np.diff(samples.values["data_bytes"], axis=0) >= 0).all()
    assert samples.total("data_packets")[-1] <= run.results.links["data_packets"].sum()
    assert {group.name for group in samples.groups} == {"nic>t0", "t0>nic", "t0>t1", "t1>t0"}


def test_long_runs_keep_a_bounded_number_of_samples(run: SimulationRun) -> None:
    recorder = LinkSampler(run.topology)
    from openmrc.sim.network.build import NetworkSettings, build

    network = build(run.topology, NetworkSettings(), hops=64)
    for now in range(0, 5000 * PS_PER_US, PS_PER_US):
        if now >= recorder.due:
            recorder.take(now, network)
    at = recorder.samples().at
    assert KEPT <= len(at) < 2 * KEPT
    assert at[-1] > 4900 * PS_PER_US


def test_the_folder_holds_summary_manifest_tables_and_page(
    run: SimulationRun, scenario: Scenario, reported: dict[str, object], tmp_path: Path
) -> None:
    polars = pytest.importorskip("polars")
    assert write(run, scenario, reported, tmp_path) == []
    assert json.loads((tmp_path / "summary.json").read_text())["finished"] == 976
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["scenario"]["fabric"]["hosts"]["count"] == 16
    flows = polars.read_parquet(tmp_path / "flows.parquet")
    assert flows.height == 976
    assert flows["fct_us"].max() == reported["fct_us"]["max"]  # type: ignore[index]
    samples = polars.read_parquet(tmp_path / "samples.parquet")
    assert samples.height == len(run.samples.at) * len(run.samples.groups)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") >= 6
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "src=" not in page


def test_a_manifest_repeats_the_run(run: SimulationRun, scenario: Scenario, tmp_path: Path) -> None:
    import msgspec

    from openmrc.report.folder import manifest

    again = msgspec.convert(manifest(scenario, 1)["scenario"], Scenario)
    assert np.array_equal(simulate(again).results.finished, run.results.finished)


def test_ctrl_c_leaves_what_had_happened_until_then(scenario: Scenario, tmp_path: Path) -> None:
    def press(status: Status) -> None:
        raise KeyboardInterrupt

    run = simulate(scenario, on_progress=press)
    reported = summary(run)
    assert reported["interrupted"]
    assert reported["finished"] < reported["flows"]
    write(run, scenario, reported, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["interrupted"]
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_progress_says_where_a_run_stands() -> None:
    status = Status(now=5 * PS_PER_US, hops=2_000_000, finished=10, of=40, share=0.5, wall_s=4.0)
    assert status.left_s == pytest.approx(4.0)
    from openmrc.report.terminal import line

    assert "0.50 M/s" in line(status)
    assert "4 s left" in line(status)


def test_percentiles_are_values_that_occurred() -> None:
    assert spread(np.array([1.0, 2.0, 3.0, 10.0])) == {"mean": 4.0, "p50": 2.0, "p99": 10.0, "max": 10.0}
    assert spread(np.array([])) == {"mean": None, "p50": None, "p99": None, "max": None}


def invoke(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["sim", *arguments])
    return result.exit_code, result.stdout, result.exception


def test_run_prints_one_json_object_and_nothing_else(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STEPS)
    code, out, _ = invoke("run", str(tmp_path / "s.yaml"), "--json", "--out", str(tmp_path / "out"))
    assert code == 0
    assert json.loads(out)["finished"] == 976
    assert (tmp_path / "out" / "report.html").exists()


def test_an_unfinished_run_exits_with_1_and_says_how_many(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STEPS.replace("until: 5ms", "until: 20us"))
    code, out, _ = invoke("run", str(tmp_path / "s.yaml"), "--json", "--out", str(tmp_path / "out"))
    reported = json.loads(out)
    assert code == 1
    assert 0 < reported["finished"] < reported["flows"]
    assert reported["slowest"][0]["fct_us"] is None


def test_run_needs_a_scenario_or_a_matrix_with_its_fabric(tmp_path: Path) -> None:
    for arguments in ((), ("--tm", "x.cm"), ("a.yaml", "--tm", "x.cm")):
        _, _, error = invoke("run", *arguments)
        assert isinstance(error, ConfigError)


def test_a_matrix_must_have_the_fabrics_hosts(tmp_path: Path) -> None:
    (tmp_path / "m.cm").write_text("Nodes 8\nConnections 1\n0->1 start 0 size 9\n")
    (tmp_path / "s.yaml").write_text(
        STEPS.replace("  - {kind: permutation, size: 20KB}\n", "  - {kind: matrix, file: m.cm}\n")
    )
    _, _, error = invoke("run", str(tmp_path / "s.yaml"))
    assert "Nodes: 8, expected 16" in str(error)


def test_settings_that_no_one_knows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STEPS.replace("{name: datagrams}", "{name: datagrams, settings: {speed: 9}}"))
    _, _, error = invoke("run", str(tmp_path / "s.yaml"))
    assert "'speed' is unknown" in str(error)


def test_a_sweep_runs_every_combination_once(tmp_path: Path) -> None:
    import polars

    (tmp_path / "s.yaml").write_text(STEPS)
    (tmp_path / "sweep.yaml").write_text(
        "scenario: s.yaml\nvary: {workloads.1.size: [10KB, 20KB], seed: [1, 2]}\n"
        "plot: {x: workloads.1.size, y: fct_us.max, by: seed}\n"
    )
    arguments = ("sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out"), "--processes", "1", "--json")
    code, out, _ = invoke(*arguments)
    assert (code, json.loads(out)["points"]) == (0, 4)
    table = polars.read_parquet(tmp_path / "out" / "results.parquet")
    assert table.height == 4
    assert set(table["workloads.1.size"]) == {"10KB", "20KB"}
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "points").iterdir()}
    next((tmp_path / "out" / "points").iterdir()).unlink()
    assert invoke(*arguments)[0] == 0
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "points").iterdir()}
    assert set(before) == set(after)
    assert sum(before[name] != after[name] for name in after) == 1


@pytest.mark.parametrize(
    ("vary", "says"),
    [
        ("{workloads.7.size: [1KB]}", "no field '7'"),
        ("{transport.name: [tcp]}", "Invalid enum value 'tcp'"),
        ("{}", "vary: empty"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_runs(tmp_path: Path, vary: str, says: str) -> None:
    (tmp_path / "s.yaml").write_text(STEPS)
    (tmp_path / "sweep.yaml").write_text(f"scenario: s.yaml\nvary: {vary}\n")
    _, _, error = invoke("sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out"))
    assert says in str(error)
    assert not (tmp_path / "out").exists()


def test_a_published_figure_stands_beside_ours_with_what_they_may_differ(
    run: SimulationRun, reported: dict[str, object]
) -> None:
    from openmrc.report.simulation import report

    ours = figure(reported, "fct_us.max")
    assert ours is not None
    published = [
        {"what": "near", "value": ours * 1.01, "of": "fct_us.max", "within_percent": 2, "source": "someone"},
        {"what": "far", "value": ours * 2, "of": "fct_us.max", "within_percent": 2, "source": "someone"},
    ]
    page = report(run, reported, {"published": published})
    assert "-1.0 % (within 2 %: yes)" in page
    assert "-50.0 % (within 2 %: no)" in page


def test_two_jobs_and_their_checkpoints_share_a_fabric() -> None:
    step = {"kind": "training_step", "steps": 2, "compute": "10us",
            "collectives": [{"kind": "ring_all_reduce", "size": "100KB"}]}  # fmt: skip
    wanted = {
        "name": "shared",
        "fabric": {
            "name": "x",
            "hosts": {"count": 16},
            "planes": [{"host_gbps": 100, "t0": {"down": 4, "up": 4}, "t1": {}}],
        },
        "workloads": [
            {**step, "hosts": "0-7"},
            {**step, "hosts": "8-13"},
            {"kind": "checkpoint", "size": "50KB", "storage": 2, "piece": "8KiB", "every": "20us", "times": 2},
        ],
    }
    done = simulate(msgspec.convert(wanted, Scenario))
    found = summary(done)
    assert done.is_complete
    assert [each["finished"] for each in found["workloads"]] == [8 * 14 * 2, 6 * 10 * 2, 14 * 7 * 2]
