"""Mistakes of somebody who writes a first scenario: each is named with file, line, key, value and what to write."""

from pathlib import Path

import pytest

from openmrc.errors import ConfigError, FieldError
from openmrc.sim.scenario.description import load, located
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare
from tests.sim.small import leaf_spine

SCENARIO = """name: mine
fabric:
  name: small
  hosts: {count: 16}
  planes: [{count: 4, host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}]
transport: {name: mrc}
workloads:
  - {kind: permutation, size: 2MB}
faults:
  - {at: 20us, for: 50us, down: plane 1}
until: 10ms
"""


def said_about(folder: Path, right: str, wrong: str) -> str:
    """Return what is said about the scenario with `wrong` in place of `right`, without the folder."""
    assert right in SCENARIO
    path = folder / "mine.yaml"
    path.write_text(SCENARIO.replace(right, wrong))
    with pytest.raises(ConfigError) as caught:
        transport_of(load(path).transport, leaf_spine())
    error = located(caught.value, path) if isinstance(caught.value, FieldError) else caught.value
    return str(error).removeprefix(f"{folder}/")


@pytest.mark.parametrize(
    ("right", "wrong", "line", "why"),
    [
        ("  name: small", "\tname: small", 3, "a tab before 'name: small'; YAML is indented with spaces"),
        ("  hosts:", "\thosts:", 4, "a tab before 'hosts: {count: 16}'; YAML is indented with spaces: replace the tab"),
        ("  - {kind", "\t- {kind", 8, "a tab before '- {kind"),
        ("until: 10ms", "until 10ms", 11, "'until 10ms' has no colon; write until: 10ms"),
        ("until: 10ms", "until:10ms", 11, "'until:10ms' has no space behind its colon; write until: 10ms"),
        ("until: 10ms", "until = 10ms", 11, "'until = 10ms' has no colon; write until: 10ms"),
        ("  name: small", "  name small", 3, "'name small' has no colon; write name: small"),
        ("fabric:\n", "fabric\n", 2, "'fabric' has no colon; write fabric:"),
        ("workloads:\n", "workloads\n", 7, "'workloads' has no colon; write workloads:"),
        ("2MB}", "2MB", 8, "the { of '- {kind: permutation, size: 2MB' is not closed; add }"),
        ("t1: {}}]", "t1: {}}", 5, "is not closed; add ]"),
        ("name: mine", "name: 'mine", 1, "is not closed; add another '"),
        ("  hosts:", "   hosts:", 4, "'hosts: {count: 16}' is indented below 'name: small', which has a value already"),
        ("name: mine", "name: mine: two", 1, "a second colon in 'name: mine: two'"),
        ("name: mine", "name: @mine", 1, "@ cannot begin a value; put it into quotes: '@mine'"),
        ("  hosts:", " hosts:", 4, "the indentation of 'hosts: {count: 16}', 1 spaces, is that of no line above it"),
    ],
)
def test_text_that_is_not_yaml_is_named_where_the_mistake_is(
    tmp_path: Path, right: str, wrong: str, line: int, why: str
) -> None:
    said = said_about(tmp_path, right, wrong)
    assert said.startswith(f"mine.yaml:{line}: not YAML: ")
    assert why in said


@pytest.mark.parametrize(
    ("right", "wrong", "line", "why"),
    [
        ("  - {kind", "  {kind", 8, "at `$.workloads`; expected a list; begin each entry with '- '"),
        ("  - {at", "  {at", 10, "at `$.faults`; expected a list; begin each entry with '- '"),
        ("hosts: {count: 16}", "hosts: 16", 4, "at `$.fabric.hosts`; expected keys with values, such as {key: value}"),
        ("host_gbps: 100", "host_gbps: 100G", 5, "got `str` '100G' - at `$.fabric.planes[0].host_gbps`; "
         "write 100, in Gb/s"),
        ("host_gbps: 100", "host_gbps: 1 Tb/s", 5, "write a number, in Gb/s"),
        ("host_gbps: 100", "host_gbps 100", 5, "it has no colon: write host_gbps: 100"),
        ("size: 2MB", "size:2MB", 8, "it has no space behind its colon: write size: 2MB"),
        ("{name: mrc}", "{name: mrc, loss_threshold: 3}", 6, "a setting belongs below settings: {loss_threshold: ...}"),
        ("down: plane 1", "loss 1%", 10, "unknown word 'loss 1%'; it has no colon: write loss: 1%"),
        ("count: 16", "count: sixteen", 4, "got `str` 'sixteen' - at `$.fabric.hosts.count`; write a number"),
    ],
)  # fmt: skip
def test_a_value_of_another_shape_says_how_it_is_written(
    tmp_path: Path, right: str, wrong: str, line: int, why: str
) -> None:
    said = said_about(tmp_path, right, wrong)
    assert said.startswith(f"mine.yaml:{line}: ")
    assert why in said


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("loss_threshold", "-2", "1..1,073,741,824"),
        ("always_skip_percent", "400", "0..100"),
        ("gamma", "-3", "0..1"),
        ("timestamp_unit", "7", "0..1"),
        ("base_rtt_us", ".nan", "1e-06..1e+09"),
    ],
)
def test_a_setting_out_of_range_is_named_with_its_line(tmp_path: Path, setting: str, value: str, allowed: str) -> None:
    said = said_about(tmp_path, "{name: mrc}", f"{{name: mrc, settings: {{{setting}: {value}}}}}")
    assert said.startswith(f"mine.yaml:6: transport: settings: {setting}: ")
    assert said.endswith(f"is not in {allowed}")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("until: 10ms", "until: 0ms", "11: until: '0ms': expected a time above 0"),
        ("until: 10ms", "until: 9999999s", "11: until: '9999999s': expected at most 1,000,000s"),
        ("until: 10ms", "sampling:\n  flows: 4\n  every: 0us", "13: sampling: every: '0us': expected a time above 0"),
        ("{name: mrc}", "{name: 3}", "6: Expected `str`, got `int` 3 - at `$.transport.name`; Known are datagrams, "
         "mrc, roce, roce_adaptive, roce_selective, uet"),
        ("{kind: permutation, size: 2MB}", "kind: matrix\n    file: no.cm",
         "9: file: 'no.cm' not found in the scenario's folder"),
        ("{kind: permutation, size: 2MB}", "kind: permutation\n    size: 2MB\n    start: 9999999s",
         "10: start: '9999999s': expected at most 1,000,000s - at `$.workloads[0]`"),
        ("t1: {}", "t1: {down: 3}", "5: plane 0: t1.down = 3, but 4 T0s need 4 ports; 12 NICs would fit, or add t2"),
    ],
)  # fmt: skip
def test_an_amount_that_cannot_be_is_named_with_its_own_line(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    assert said_about(tmp_path, right, wrong) == f"mine.yaml:{said}"


def test_a_second_class_on_lossless_ports_is_named_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        SCENARIO.replace("{name: mrc}", "{name: roce}").replace(
            "  - {kind: permutation, size: 2MB}", "  - kind: permutation\n    size: 2MB\n    second_class: true"
        )
    )
    with pytest.raises(FieldError) as caught:
        prepare(load(path))
    assert str(located(caught.value, path)).startswith(f"{path}:10: second_class: the ports of roce are lossless")


def test_a_fault_after_the_end_of_the_run_is_refused(tmp_path: Path) -> None:
    said = said_about(tmp_path, "at: 20us", "at: 20s")
    assert said == (
        "mine.yaml:10: faults, step 1, at: '20s' is not before the end of the run, until: '10ms'; "
        "use an earlier time, or a later `until`"
    )
