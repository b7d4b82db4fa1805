import itertools
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.model.build import build, save
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.operations.control.controller import ControllerEventKind, FabricController
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.diagnosis.verdicts import WorkOrder
from openmrc.operations.fleets.feed import (
    FeedFleet,
    FeedMapping,
    Sample,
    load_mapping,
    sample_of_json,
    samples_of_openmetrics,
)
from openmrc.programs.main import app
from tests.fabric.renamed_fabrics import renamed
from tests.fabric.small_fabrics import fabric, plan
from tests.operations.fleets.feed_series import Series

PLAN = plan("two-tier")
NICS = FeedMapping(
    metrics={"sent": ["tx_packets"], "lost": ["retransmits", "timeouts"], "marked": ["cnps"]},
    labels={"source": "hostname", "destination": "peer", "ev": "path_id"},
    names={f"gpu{host:02}": f"h{host}" for host in range(12)},
)
SWITCHES = FeedMapping(
    metrics={
        "sent": ["interfaces_interface_state_counters_in_pkts"],
        "lost": ["interfaces_interface_state_counters_in_errors"],
    },
    labels={"switch": "source", "interface": "interface_name"},
)


def page_of_nics(series: Series) -> str:
    """Write the counters as an exporter on every host would."""
    lines = ["# TYPE tx_packets counter"]
    for key in series.paths:
        labels = f'hostname="gpu{key[0]:02}.site",peer="gpu{key[1]:02}",path_id="{key[2]}"'
        lines.append(f"tx_packets{{{labels}}} {series.sent[key]}")
        lines.append(f"retransmits{{{labels}}} {float(series.lost[key] // 2)}")
        lines.append(f"timeouts{{{labels}}} {series.lost[key] - series.lost[key] // 2} 1790000000000")
        lines.append(f"cnps{{{labels}}} {series.marked[key]}")
    return "\n".join(lines) + "\n# EOF\n"


def page_of_switches(series: Series) -> str:
    """Write the counters as gnmic's Prometheus output has OpenConfig's `in-pkts` and `in-errors` of its targets."""
    topology, lines = series.plan.topology, []
    first, out = topology.outgoing
    for (here, there), (good, bad) in series.into.items():
        node = topology.node_named(there)
        for link in out[first[node] : first[node + 1]].tolist():
            if node >= topology.nics and topology.name(int(topology.link_destination[link])) == here:
                port = int(topology.link_port[link])
                name = topology.port_name(node, port) or f"p{port}"
                labels = f'interface_name="{name}",source="{there}:57400",subscription_name="ports"'
                lines.append(f"interfaces_interface_state_counters_in_pkts{{{labels}}} {good}")
                lines.append(f"interfaces_interface_state_counters_in_errors{{{labels}}} {bad}")
    return "\n".join(lines) + "\n"


def named(made: UsidPlan, mapping: FeedMapping, pages: Iterator[str], folder: Path) -> list[str]:
    """Return the parts that a controller names over pages of OpenMetrics, one an interval."""
    fleet, found = FeedFleet(made, mapping), []
    with FabricController(made, folder, 0.0, fleet=fleet) as controller:
        for interval, page in enumerate(pages):
            assert fleet.take(samples_of_openmetrics(page, mapping)) > 0
            found += [each.part for each in controller.step(float(interval)) if each.what == ControllerEventKind.NAMED]
    assert not fleet.unknown
    return found


def of_nics(series: Series, intervals: int, bursts: dict[int, str]) -> Iterator[str]:
    for interval in range(intervals):
        series.interval(bursts.get(interval, ""))
        yield page_of_nics(series)


def of_switches(series: Series, intervals: int) -> Iterator[str]:
    for _ in range(intervals):
        series.interval()
        yield page_of_switches(series)


@pytest.mark.parametrize(
    ("hop", "share"),
    [(("p0-t0-01", "p0-t1-02"), 1.0), (("p1-t1-03", "p1-t0-00"), 0.01), (("h7", "p1-t0-01"), 0.001)],
)
def test_one_direction_of_a_cable_is_named_from_counters_of_nics(
    hop: tuple[str, str], share: float, tmp_path: Path
) -> None:
    series = Series(PLAN, broken={hop: share})
    assert named(PLAN, NICS, of_nics(series, 8, {}), tmp_path) == [">".join(hop)]


@pytest.mark.parametrize("name", ["p0-t1-02", "p1-t0-00"])
def test_a_dead_switch_is_named_from_counters_of_nics(name: str, tmp_path: Path) -> None:
    hops = {hop for nodes in Series(PLAN).paths.values() for hop in itertools.pairwise(nodes) if name in hop}
    series = Series(PLAN, broken=dict.fromkeys(hops, 1.0))
    assert named(PLAN, NICS, of_nics(series, 6, {}), tmp_path) == [name]


def orders_of(controller: FabricController, fleet: FeedFleet, pages: Iterator[str]) -> list[tuple[str, WorkOrder]]:
    found: list[tuple[str, WorkOrder]] = []
    for interval, page in enumerate(pages):
        fleet.take(samples_of_openmetrics(page, NICS))
        found += [(each.what, each.order) for each in controller.step(float(interval)) if each.order is not None]
    return found


def test_two_directions_out_of_a_switch_that_die_together_may_be_exchanged_plugs(tmp_path: Path) -> None:
    fleet = FeedFleet(PLAN, NICS)
    series = Series(PLAN, broken={("p0-t0-01", "p0-t1-02"): 1.0, ("p0-t0-01", "p0-t1-03"): 1.0})
    with FabricController(PLAN, tmp_path, 0.0, fleet=fleet) as controller:
        found = orders_of(controller, fleet, of_nics(series, 6, {}))
    assert {(order.verdict.part, order.exchanged) for _, order in found} == {
        ("p0-t0-01>p0-t1-02", "p0-t0-01>p0-t1-03"),
        ("p0-t0-01>p0-t1-03", "p0-t0-01>p0-t1-02"),
    }


def test_three_dead_cables_of_a_switch_are_no_exchange(tmp_path: Path) -> None:
    fleet = FeedFleet(PLAN, NICS)
    series = Series(PLAN, broken={("p0-t0-01", f"p0-t1-0{spine}"): 1.0 for spine in range(3)})
    with FabricController(PLAN, tmp_path, 0.0, fleet=fleet) as controller:
        found = orders_of(controller, fleet, of_nics(series, 6, {}))
    assert {order.exchanged for _, order in found} == {""}
    assert len(found) == 3


def test_a_part_that_comes_and_goes_has_one_work_order(tmp_path: Path) -> None:
    plane = Plane(host_gbps=1, t0=Tier(down=2, up=2), t1=Tier())
    small = usid_plan(build(Fabric(name="small", hosts=Hosts(count=6), planes=(plane,))))
    fleet, hop = FeedFleet(small, NICS), ("p0-t0-01", "p0-t1-00")
    series = Series(small)

    def pages() -> Iterator[str]:
        for interval in range(130):
            series.broken = {hop: 1.0} if interval % 60 in (4, 5, 6, 7) else {}
            series.interval()
            yield page_of_nics(series)

    with FabricController(small, tmp_path, 0.0, fleet=fleet) as controller:
        found = orders_of(controller, fleet, pages())
    assert [(what, order.times) for what, order in found] == [
        ("work order", 1),
        ("work order again", 2),
        ("work order again", 3),
    ]
    assert found[-1][1].over_s == pytest.approx(120, abs=2)


def test_a_cable_that_dies_one_way_and_then_the_other_has_one_work_order(tmp_path: Path) -> None:
    fleet, ends = FeedFleet(PLAN, NICS), ("p0-t0-01", "p0-t1-02")
    series = Series(PLAN)

    def pages() -> Iterator[str]:
        for interval in range(12):
            series.broken = {} if interval < 3 else {ends: 1.0, **({ends[::-1]: 1.0} if interval > 6 else {})}
            series.interval()
            yield page_of_nics(series)

    with FabricController(PLAN, tmp_path, 0.0, fleet=fleet) as controller:
        found = orders_of(controller, fleet, pages())
    assert [(what, order.verdict.part, order.exchanged) for what, order in found] == [
        ("work order", ">".join(ends), ""),
        ("work order again", "<>".join(ends), ""),
    ]


def test_what_a_controller_denies_is_in_its_audit_log_with_the_evidence(tmp_path: Path) -> None:
    fleet, series = FeedFleet(PLAN, NICS), Series(PLAN, broken={("p0-t0-01", "p0-t1-02"): 1.0})
    with FabricController(PLAN, tmp_path, 0.0, DenialLimits(dry_run=False), fleet=fleet) as controller:
        for interval, page in enumerate(of_nics(series, 5, {})):
            fleet.take(samples_of_openmetrics(page, NICS))
            controller.step(float(interval))
    (line, *_) = (tmp_path / "controller" / "audit.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["does"], entry["what"], entry["outcome"]) == ("named", "p0-t0-01>p0-t1-02", "denied")
    assert re.fullmatch(r"\d+ of \d+ lost", entry["why"])


def test_a_burst_of_congestion_is_no_fault(tmp_path: Path) -> None:
    assert named(PLAN, NICS, of_nics(Series(PLAN, seed=2), 10, {3: "h4", 4: "h4", 7: "h9"}), tmp_path) == []


def test_a_port_with_errors_is_named_from_counters_of_switches(tmp_path: Path) -> None:
    described = renamed(fabric("two-tier"), 3)
    made = usid_plan(build(described))
    lower, upper = made.topology.name(13), made.topology.name(16)
    assert {made.topology.node_tier[node] for node in (13, 16)} == {0, 1}
    series = Series(made, broken={(lower, upper): 0.0005})
    assert named(made, SWITCHES, of_switches(series, 8), tmp_path) == [f"{lower}>{upper}"]


def test_counters_that_begin_again_are_no_news() -> None:
    fleet = FeedFleet(PLAN, FeedMapping())
    line = {"source": "h0", "destination": "h5", "ev": 2, "sent": 1000, "lost": 500}
    for counts in ({}, {"sent": 2000, "lost": 900}, {"sent": 10, "lost": 0}, {"sent": 30, "lost": 5}):
        fleet.take([sample_of_json(json.dumps(line | counts), FeedMapping(), "test")[1]])
    assert sum(counted for paths in fleet.look().by_plane.values() for counted, _, _ in paths.values()) == 1020 - 405


@pytest.mark.parametrize(
    ("places", "why"),
    [
        ({"source": "h0", "ev": "1"}, "no destination in it"),
        ({"source": "h0", "destination": "h1"}, "no ev in it"),
        ({"source": "h0", "destination": "hx", "ev": "1"}, "no node is called 'hx'"),
        ({"source": "h0", "destination": "h1", "ev": "999"}, "EV 999 is out of range"),
        ({"source": "h0", "destination": "h9", "plane": "9", "path": "fcbb::"}, "is no path of plane 9"),
        ({"switch": "p0-t0-00", "interface": "eth77"}, "no port 'eth77' of 'p0-t0-00' in the fabric"),
    ],
)
def test_what_is_not_of_the_fabric_is_told(places: dict[str, str], why: str) -> None:
    fleet = FeedFleet(PLAN, FeedMapping())
    sample = Sample(tuple(sorted(places.items())), places, {"sent": 1.0, "lost": 0.0, "trimmed": 0.0, "marked": 0.0})
    assert fleet.take([sample, sample]) == 0
    ((told, count),) = fleet.unknown.items()
    assert why in told
    assert count == 1


def test_labels_with_quotes_and_values_that_are_none_are_read() -> None:
    text = 'sent{source="h\\"0",x="a,b}"} 5\nsent{source="h1"} NaN?\nlost 3\n'
    found = list(samples_of_openmetrics(text, FeedMapping()))
    assert [(each.places, each.counts["sent"], each.counts["lost"]) for each in found] == [
        ({"source": 'h"0'}, 5.0, 0.0),
        ({}, 0.0, 3.0),
    ]


def test_a_metric_of_two_counts_is_in_both_in_either_format() -> None:
    mapping = FeedMapping(metrics={"sent": ["tx"], "lost": ["dropped", "cut"], "trimmed": ["cut"]}, labels={"ev": "id"})
    page = 'tx{id="3"} 100\ndropped{id="3"} 2\ncut{id="3"} 5\n'
    line = {"tx": 100, "dropped": 2, "cut": 5, "id": 3, "at": 1.5}
    expected = Sample((("id", "3"),), {"ev": "3"}, {"sent": 100, "lost": 7, "trimmed": 5, "marked": 0})
    assert list(samples_of_openmetrics(page, mapping)) == [expected]
    assert sample_of_json(json.dumps(line), mapping, "test") == (1.5, expected)


def test_a_mapping_of_unknown_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text("labels: {host: hostname}\n")
    with pytest.raises(ConfigError, match="'host'; source, destination, plane, ev, path"):
        load_mapping(tmp_path / "map.yaml")


def test_the_command_replays_lines_of_json(tmp_path: Path) -> None:
    series = Series(PLAN, broken={("p0-t1-01", "p0-t0-02"): 0.01})
    names = {index: f"h{index}" for index in range(12)}
    with (tmp_path / "series.jsonl").open("w") as file:
        for interval in range(5):
            series.interval()
            for source, destination, ev in series.paths:
                key = (source, destination, ev)
                line = {"at": 100 + 30 * interval, "source": names[source], "peer": names[destination], "ev": ev}
                file.write(json.dumps(line | {"sent": series.sent[key], "retries": series.lost[key]}) + "\n")
    (tmp_path / "map.yaml").write_text("metrics: {lost: [retries]}\nlabels: {destination: peer}\n")
    save(PLAN.topology.fabric, tmp_path / "two-tier.yaml", "test")
    files = [str(tmp_path / name) for name in ("two-tier.yaml", "series.jsonl", "map.yaml")]
    result = CliRunner().invoke(app, ["map", "feed", *files[:2], "--mapping", files[2], "--every", "30", "--json"])
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    parts = [(each["what"], each["part"]) for each in events]
    assert parts[:2] == [("named", "p0-t1-01>p0-t0-02"), ("work order", "p0-t1-01>p0-t0-02")]
    assert events[0]["at"] in (60.0, 90.0, 120.0)


def test_a_page_that_is_not_of_http_is_a_note(tmp_path: Path) -> None:
    save(PLAN.topology.fabric, tmp_path / "two-tier.yaml", "test")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            asked, _ = listener.accept()
            with asked:
                asked.recv(1 << 16)
                asked.sendall(b"220 ready for mail\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        result = CliRunner().invoke(app, ["map", "feed", str(tmp_path / "two-tier.yaml"), url, "--for", "0"])
        thread.join()
    assert result.exit_code == 0, result.output
    assert f"mrc: {url}: " in result.stderr
