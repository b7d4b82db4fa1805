import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.programs.main import app

run = CliRunner().invoke
SCENARIOS = Path(__file__).parents[2] / "scenarios" / "ev"

# What each listed EV expands to, without the zeros at the end.
GOLDEN = {
    "stev_explicit": ["12345678", "deadbeef", "00010002"],
    "stev_generated": ["2468ace0", "13579bdf"],
    "stev_32": ["80000001", "ffffffff", "70000000"],
    "stev_fixed": ["01010202", "010f020f", "010a0201"],
    "stev_interleaved": ["1a0b2102", "10012f0f"],
    "udp": ["c001", "ffff"],
    "srv6_explicit": ["cafecafe0101020103010401", "cafecafe1111222233334444"],
    "srv6_subset": ["deaddead01010201", "deaddeadaaaabbbb"],
    "srv6_generated": ["424242420001000200030004", "42424242000f000e000d000c"],
    "srv6_fixed": ["131313130101020203030404", "13131313010f020e030d040c"],
    "srv6_srh": ["cafecafe010102020303040405050606decafbad07070808"],
    "three_tiers": [],
}


def expanded(*arguments: str) -> list[dict[str, str]]:
    result = run(app, ["ev", "expand", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert set(said) == {"evs"}
    pairs: list[dict[str, str]] = said["evs"]
    assert all(set(pair) == {"ev", "expanded"} and len(pair["ev"]) == len(pair["expanded"]) == 64 for pair in pairs)
    return pairs


def test_every_scenario_has_a_golden_result() -> None:
    assert {path.stem for path in SCENARIOS.glob("*.yaml")} == set(GOLDEN)


@pytest.mark.parametrize("name", [name for name, golden in GOLDEN.items() if golden])
def test_scenarios_expand_as_they_always_did(name: str) -> None:
    pairs = expanded(str(SCENARIOS / f"{name}.yaml"))
    assert [pair["expanded"] for pair in pairs] == [wire.ljust(64, "0") for wire in GOLDEN[name]]


def test_generated_evs_depend_on_the_seed_alone() -> None:
    profile = str(SCENARIOS / "three_tiers.yaml")
    first = expanded(profile, "--count", "4", "--seed", "7")
    assert first == expanded(profile, "--count", "4", "--seed", "7")
    assert first != expanded(profile, "--count", "4", "--seed", "8")
    assert [pair["expanded"][:8] for pair in first] == GENERATED


GENERATED = ["403e090a", "007f000c", "5056080c", "3047030e"]


def test_a_line_shows_ev_wire_value_and_parts() -> None:
    result = run(app, ["ev", "expand", str(SCENARIOS / "stev_interleaved.yaml")])
    assert result.stdout.splitlines() == ["ab12 -> 1a0b2102  (1a0b 2102)", "01ff -> 10012f0f  (1001 2f0f)"]


def test_show_says_where_the_bits_go() -> None:
    result = run(app, ["ev", "show", str(SCENARIOS / "stev_fixed.yaml")])
    assert result.stdout.splitlines()[:2] == [
        "STEV: 32 bits on the wire from 8 EV bits",
        "  field 0: wire bits 0..15, starts as 0x100, 4 EV bits under mask 0xf, 1..15",
    ]


def test_show_as_json_counts_what_can_be_generated() -> None:
    said = json.loads(run(app, ["ev", "show", str(SCENARIOS / "three_tiers.yaml"), "--json"]).stdout)
    assert said == {
        "mode": "stev", "generated": True, "format_bits": 32, "ev_bits": 19, "choices": 8 * 180 * 16 * 16, "evs": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("stev_explicit", ["--count", "3"], "profile.mode: explicit; --count"),
        ("stev_fixed", ["--count", "226"], "--count: 226 EVs; the fields' bounds allow 225"),
        ("three_tiers", [], "profile.evs: missing; list some, or give --count N"),
    ],
)
def test_what_cannot_be_done_is_said(name: str, arguments: list[str], text: str) -> None:
    result = run(app, ["ev", "expand", str(SCENARIOS / f"{name}.yaml"), *arguments])
    assert isinstance(result.exception, ConfigError)
    assert f"{name}.yaml: " in str(result.exception)
    assert text in str(result.exception)
    assert result.stdout == ""


def test_a_listed_ev_outside_the_bounds_is_expanded_with_a_warning(tmp_path: Path) -> None:
    profile = tmp_path / "low.yaml"
    profile.write_text((SCENARIOS / "stev_fixed.yaml").read_text().replace("0x12", "0x02"))
    result = run(app, ["ev", "expand", str(profile), "--json"])
    assert json.loads(result.stdout)["evs"][0]["expanded"].startswith("01000202")
    assert "profile.evs[0]: (0x0, 0x2) is outside min_val..max_val" in result.stderr


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    profile = tmp_path / "p.yaml"
    if content is not None:
        profile.write_bytes(content)
    result = run(app, ["ev", "expand", str(profile)])
    assert isinstance(result.exception, ConfigError)
    assert "p.yaml: cannot be read" in str(result.exception)
