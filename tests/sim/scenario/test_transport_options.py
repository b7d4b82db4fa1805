"""Settings of a transport that cannot work are refused before the run, with their name."""

from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.sim.network.network_tables import Routing
from openmrc.sim.scenario.description import Transport, load
from openmrc.sim.scenario.transport_options import transport_of
from tests.sim.small import leaf_spine


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("mrc", "timeout_us", 0),
        ("mrc", "evs", 0),
        ("mrc", "evs", 4096),
        ("mrc", "reserve", 2.0),
        ("mrc", "probe_successes", 0),
        ("mrc", "ecn_low_bdp", 0.9),
        ("mrc", "buffer_bdp", -1),
        ("uet", "entropies", 0),
        ("roce", "timeout_us", 0),
        ("roce", "gain", 2.0),
        ("roce", "resume_packets", 99),
        ("datagrams", "control_size", 0),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(name: str, setting: str, value: float) -> None:
    wanted = Transport(name=name, settings={setting: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"transport: settings: {setting}: {value}"):
        transport_of(wanted, leaf_spine())


def test_a_setting_of_a_closed_set_is_given_by_name_or_number() -> None:
    by_name, by_number = (
        transport_of(Transport(settings={"routing": given}), leaf_spine()).network for given in ("hash", 1)
    )
    assert by_name == by_number
    assert by_name.routing == Routing.HASH


@pytest.mark.parametrize("given", ["sideways", 9])
def test_a_setting_outside_a_closed_set_is_refused_with_its_words(given: str | int) -> None:
    with pytest.raises(ConfigError, match=rf"routing: {given!r}: expected one of entropy, hash"):
        transport_of(Transport(settings={"routing": given}), leaf_spine())


@pytest.mark.parametrize("line", ["until: 0us", "sampling: {every: 0us}"])
def test_a_time_of_nothing_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "none.yaml"
    fabric = "{name: x, hosts: {count: 16}, planes: [{host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}"
    path.write_text(f"name: none\nfabric: {fabric}\nworkloads: [{{kind: permutation, size: 1KB}}]\n{line}\n")
    with pytest.raises(ConfigError, match="a time above 0"):
        load(path)
