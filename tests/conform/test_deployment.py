"""What a deployment sets: its DSCPs and UDP port, as the adapter describes them; and the example of an adapter."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from openmrc.conform.catalogue import shipped_tests
from openmrc.conform.datagrams import AS_THEY_ARE, USUAL_DSCPS, DscpNumbers, translations
from openmrc.conform.language import PartOfDevice, ScriptTest
from openmrc.programs.main import app

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "conform_responder.py"


def numbers_of(dscps: DscpNumbers) -> dict[str, int]:
    return {name: getattr(dscps, name) for name in dscps.__struct_fields__}


@pytest.mark.parametrize("seed", range(50))
def test_dscps_are_translated_one_to_one_whatever_they_are(seed: int) -> None:
    chosen = random.Random(seed).sample(range(64), 6)
    numbers = dict(zip(numbers_of(USUAL_DSCPS), chosen, strict=True))
    to_wire, from_wire = translations(DscpNumbers(**numbers))
    assert sorted(to_wire) == sorted(from_wire) == list(range(64))
    assert all(from_wire[to_wire[each]] == each for each in range(64))
    assert {name: to_wire[usual] for name, usual in numbers_of(USUAL_DSCPS).items()} == numbers


def test_the_usual_dscps_are_left_alone_and_classes_may_share_one() -> None:
    assert translations(USUAL_DSCPS) == (AS_THEY_ARE, AS_THEY_ARE)
    to_wire, from_wire = translations(
        DscpNumbers(data=10, retransmitted=10, no_trim=10, control=26, trimmed=12, lasthop=12)
    )
    assert (from_wire[10], from_wire[12], from_wire[26]) == (4, 12, 46)
    assert (to_wire[4], to_wire[8], to_wire[0], to_wire[16]) == (10, 10, 10, 12)
    assert from_wire[46] not in numbers_of(USUAL_DSCPS).values()  # a number of no class must not look like one


def test_what_is_no_dscp_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"control is 64, not in 0\.\.63"):
        msgspec.convert({"control": 64}, DscpNumbers)


def verdicts(options: str, *tests: str) -> dict[str, str]:
    command = f"{sys.executable} {EXAMPLE} {options}"
    result = CliRunner().invoke(app, ["conform", "--device", command, "--json", *tests])
    return {each["id"]: each["verdict"] for each in json.loads(result.stdout)["tests"]}


def asks_for_more(test: ScriptTest) -> bool:
    """Whether a test needs what the example does not have: Dynamic MPR, a second queue pair, RESET, or writes."""
    commands = {step.subject for step in test.steps if step.kind == "*"}
    return test.wanted.dynamic_mpr or test.wanted.pairs > 1 or bool(commands & {"reset", "write"})


def test_the_example_passes_what_it_claims() -> None:
    found = verdicts("", "responder")
    lacking = {name for name, verdict in found.items() if verdict == "unsupported"}
    tests = [test for test in shipped_tests() if test.part == PartOfDevice.RESPONDER]
    assert lacking == {test.id for test in tests if asks_for_more(test)}
    assert "fail" not in found.values(), found
    assert list(found.values()).count("pass") >= 60, found  # a busy host may make some inconclusive


CLASSES = ("6.2.2/1", "7.5/3", "table-7-3/1", "table-7-3/2", "table-7-3/4", "A17/2")


def test_a_device_of_another_deployment_is_tested_with_its_dscps_and_port() -> None:
    # Numbers that mean something else by default: 12 is that of trimmed packets, 46 of control, 4 of data.
    options = "--data 12 --control 4 --trimmed 46 --lasthop 63 --port 6791"
    found = verdicts(options, *CLASSES)
    assert set(found.values()) <= {"pass", "inconclusive"}, found
    assert list(found.values()).count("pass") >= 4, found  # a busy host may make some inconclusive


def test_a_device_with_other_dscps_than_it_says_does_not_pass(tmp_path: Path) -> None:
    liar = tmp_path / "liar.py"
    source = EXAMPLE.read_text(encoding="utf-8")
    assert source.count('"dscps": self.dscps, ') == 1
    liar.write_text(source.replace('"dscps": self.dscps, ', ""), encoding="utf-8")
    command = f"{sys.executable} {liar} --data 12 --control 4 --trimmed 46"
    result = CliRunner().invoke(app, ["conform", "--device", command, "--json", "7.5/3", "table-7-3/1"])
    found = [each["verdict"] for each in json.loads(result.stdout)["tests"]]
    assert set(found) <= {"fail", "inconclusive"}, found  # NACKs are missing, which a busy host excuses
