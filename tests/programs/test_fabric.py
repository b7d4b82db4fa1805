import ipaddress
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.programs.main import app

FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"
LAB = str(FABRICS / "lab.yaml")
run = CliRunner().invoke


def said(*text: str) -> dict[str, object]:
    result = run(app, ["fabric", *text, "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert isinstance(answer, dict)
    return answer


def test_verify_has_its_numbers() -> None:
    answer = said("verify", LAB)
    assert {"pairs", "paths", "delivered", "broken", "wall_s"} <= set(answer)
    assert (answer["pairs"], answer["delivered"], answer["broken"]) == (240, answer["paths"], [])


def printed(code: int, *text: str) -> list[str]:
    result = run(app, ["fabric", *text])
    assert result.exit_code == code, result.output
    return result.stdout.splitlines()


def test_verify_says_in_one_sentence_that_a_fabric_is_proven() -> None:
    first, _, *facts = printed(0, "verify", LAB)
    assert first == "PROVEN: every EV of all 240 ordered pairs of NICs is delivered on the path that it names."
    assert facts[1].split() == ["paths,", "one", "an", "EV", "3,264"]


def test_verify_says_what_is_left_before_maintenance() -> None:
    lines = printed(0, "verify", LAB, "--without", "p0-t1-03", "--without", "h2 port 1")
    worst = "every pair of NICs keeps paths; the worst, h2 to h4, keeps 11 of 16 (68.8%)."
    assert f"PROVEN without p0-t1-03, h2 port 1 (5 cables): {worst}" in lines
    planes = [word for plane in range(4) for word in ("--without", f"plane {plane}")]
    lines = printed(1, "verify", LAB, *planes)
    assert any(line.startswith("NOT PROVEN without plane 0, ") and "240 pairs" in line for line in lines)
    assert lines[0].startswith("PROVEN:")
    left = json.loads(run(app, ["fabric", "verify", LAB, "--without", "p0-t1-03", "--json"]).stdout)["without"]
    assert (left["proven"], left["what"], left["cables"], left["pairs_cut"]) == (True, ["p0-t1-03"], 4, 0)


def test_verify_lists_what_is_wrong_and_what_becomes_of_a_packet(tmp_path: Path) -> None:
    said("export", LAB, "--to", "linux", "--out", str(tmp_path))
    batch = tmp_path / "p2-t1-03.batch"
    lines = batch.read_text().splitlines()
    batch.write_text("\n".join(line for line in lines if "fcbb:bb02:1002::/48" not in line) + "\n")
    told = printed(1, "verify", LAB, "--from", str(tmp_path))
    assert told[0] == "NOT PROVEN: 48 of 3,264 paths are not as planned, because of 1 wrong entry."
    assert any("route 2  nothing  does not deliver" in line and "dropped, no entry" in line for line in told)


def test_a_path_shows_the_usid_shifted_hop_by_hop() -> None:
    answer = said("path", LAB, "h0", "h15", "--ev", "5")
    hops = answer["hops"]
    assert isinstance(hops, list)
    assert [(hop["node"], hop["address"]) for hop in hops] == [
        ("h0", "fcbb:bb01:1000:2001:1003:e003:1003:0"),
        ("p1-t0-00", "fcbb:bb01:1000:2001:1003:e003:1003:0"),
        ("p1-t1-01", "fcbb:bb01:2001:1003:e003:1003::"),
        ("p1-t0-03", "fcbb:bb01:1003:e003:1003::"),
    ]
    assert answer["arrives_as"] == "fcbb:bb01:e003:1003::"


@pytest.mark.parametrize("name", ["lab", "gpus-1024", "paper-131072", "fat-tree", "two-sites", "rails", "irregular"])
def test_every_example_can_be_shown(name: str) -> None:
    answer = said("show", str(FABRICS / f"{name}.yaml"))
    assert answer["name"] == name


def test_a_node_is_shown_with_links_and_table() -> None:
    answer = said("show", LAB, "p0-t0-01")
    assert len(answer["links"]) == 8  # type: ignore[arg-type]
    assert answer["entries"][0] == "fcbb:bb00:1001::/48 un"  # type: ignore[index]
    assert said("show", LAB, "h3")["addresses"]["plane 2"] == "fcbb:bb02:e003:1000::"  # type: ignore[index]


def test_a_node_of_a_graph_is_shown_with_its_links() -> None:
    answer = said("show", str(FABRICS / "irregular.yaml"), "right")
    assert [link["to"] for link in answer["links"]] == ["b", "left", "left", "middle"]  # type: ignore[attr-defined]
    assert set(answer) == {"name", "links"}


def test_a_profile_is_printed_for_the_endpoint() -> None:
    answer = said("profile", LAB, "h0", "h15", "--mode", "generated")
    assert answer["profile"]["mode"] == "generated"  # type: ignore[index]


def test_the_schema_is_printed() -> None:
    assert json.loads(run(app, ["fabric", "schema"]).stdout)["$ref"] == "#/$defs/Fabric"


def test_an_unknown_host_is_refused() -> None:
    result = run(app, ["fabric", "path", LAB, "h0", "h16"])
    assert "NICs are h0 to h15" in str(result.exception)


def test_an_export_is_written_and_reads_back(tmp_path: Path) -> None:
    answer = said("export", LAB, "--to", "sonic", "--out", str(tmp_path))
    assert answer["files"] == 32
    again = said("diff", LAB, "p1-t1-02", str(tmp_path / "p1-t1-02.json"), "--of", "sonic")
    assert (again["clean"], again["missing"], again["extra"], again["wrong"]) == (True, [], [], [])


def test_an_export_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run(app, ["fabric", "export", LAB, "--to", "eos", "--out", str(tmp_path / "file")])
    assert str(result.exception) == f"{tmp_path / 'file'}: cannot be written: File exists"


def test_a_mistyped_target_is_told_before_a_missing_option() -> None:
    result = run(app, ["fabric", "export", LAB, "--to", "sonik"])
    assert "cannot export to 'sonik'; sonic, " in str(result.exception)


def test_an_empty_dump_is_refused_rather_than_compared(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text("\n")
    result = run(app, ["fabric", "diff", LAB, "p1-t1-02", str(tmp_path / "dump.json")])
    assert "dump.json: nothing in it; expected what the switch printed" in str(result.exception)


def test_the_dump_of_another_switch_is_told(tmp_path: Path) -> None:
    said("export", LAB, "--to", "frr", "--out", str(tmp_path))
    result = run(app, ["fabric", "diff", LAB, "p1-t1-02", str(tmp_path / "p1-t1-03.conf"), "--of", "frr", "--json"])
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    sids = "segment-routing / srv6 / static-sids sid fcbb:bb01:{}::/48: locator MRC behavior uN"
    assert sids.format("2002") in answer["missing"]
    assert answer["extra"][-1] == sids.format("2003")


def test_one_switch_can_be_printed() -> None:
    result = run(app, ["fabric", "export", LAB, "--to", "frr", "--switch", "p0-t0-00"])
    assert "hostname p0-t0-00" in result.stdout
    whole = run(app, ["fabric", "export", LAB, "--to", "frr"])
    assert "give --out" in str(whole.exception)


@pytest.mark.parametrize(("mode", "options"), [("explicit", []), ("generated", ["--count", "16"])])
def test_the_endpoint_expands_a_profile_to_the_paths_of_the_plan(tmp_path: Path, mode: str, options: list[str]) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(json.dumps(said("profile", LAB, "h0", "h15", "--mode", mode)))
    result = run(app, ["ev", "expand", str(profile), "--json", *options])
    got = {each["expanded"][:24] for each in json.loads(result.stdout)["evs"]}
    paths = {said("path", LAB, "h0", "h15", "--ev", str(ev))["address"] for ev in range(16)}
    expected = {ipaddress.IPv6Address(str(each)).packed.hex()[:24] for each in paths}
    assert got <= expected
    assert got == expected or mode == "generated"


def test_a_whole_fabric_is_compared_and_its_switches_are_listed(tmp_path: Path) -> None:
    said("export", LAB, "--to", "sonic", "--out", str(tmp_path), "--ntp", "10.0.0.1", "--mtu", "9100")
    answer = said("diff", LAB, str(tmp_path), "--ntp", "10.0.0.1", "--mtu", "9100")
    assert (answer["clean"], answer["switches"], answer["differing"]) == (True, 32, 0)
    path = tmp_path / "p1-t0-02.json"
    path.write_text(path.read_text().replace('"blackhole": "false"', '"blackhole": "true"', 1))
    options = ("--ntp", "10.0.0.1", "--mtu", "9100")
    result = run(app, ["fabric", "diff", LAB, str(tmp_path), *options])
    assert result.exit_code == 1
    assert "p1-t0-02        0      0      1\n" in result.stdout
    assert "  installed  STATIC_ROUTE default|fcbb:bb01:2000::/48: blackhole true\n" in result.stdout
    result = run(app, ["fabric", "diff", LAB, str(tmp_path), "--json"])  # other options: everything differs
    assert json.loads(result.stdout)["differing"] == 32


def test_what_is_installed_is_proven_from_a_folder(tmp_path: Path) -> None:
    said("export", LAB, "--to", "frr", "--out", str(tmp_path))
    answer = said("verify", LAB, "--from", str(tmp_path))
    assert (answer["proven"], answer["clean"], answer["not_working"]) == (True, True, {})
    path = tmp_path / "p2-t1-03.conf"
    path.write_text(path.read_text().replace("interface p1\n", "interface p1\n shutdown\n"))
    result = run(app, ["fabric", "verify", LAB, "--from", str(tmp_path), "--json"])
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [each["switch"] for each in answer["differences"]] == ["p2-t1-03"]
    assert answer["not_working"] == {"p2-t1-03": ["fcbb:bb02:1001::/48 route: interface p1 is shut down"]}
    assert {(step["switch"], step["entry"]) for step in answer["broken"]} == {
        ("p2-t1-03", "fcbb:bb02:1001::/48"),
        ("p2-t0-01", "fcbb:bb02:2003::/48"),
    }


def test_one_host_is_printed() -> None:
    result = run(
        app, ["fabric", "export", LAB, "--to", "hosts", "--host", "h3", "--interface", "enp{nic}s0f{plane}", "--json"]
    )
    files = json.loads(result.stdout)
    assert set(files) == {
        f"h3.{ending}" for ending in ("netplan.yaml", "sysctl", "tc", "map.json", "0.nic.json", "env")
    }
    assert "enp0s0f3:" in files["h3.netplan.yaml"]
    assert "ports are called as --interface says" in result.stderr


def test_ports_that_no_cage_has_are_refused() -> None:
    result = run(app, ["fabric", "export", LAB, "--to", "eos", "--switch", "p0-t0-00", "--cages", "1", "--lanes", "4"])
    assert isinstance(result.exception, ConfigError)
    assert "8 ports need 2 cages of 4 x 100G; the switch has 1" in str(result.exception)


def test_an_entry_that_no_path_uses_is_not_proven(tmp_path: Path) -> None:
    said("export", LAB, "--to", "linux", "--out", str(tmp_path))
    batch = tmp_path / "p0-t1-00.batch"
    (known,) = (line for line in batch.read_text().splitlines() if "fcbb:bb00:1001::/48" in line)
    batch.write_text(batch.read_text() + known.replace(":1001::", ":4444::") + "\n")
    result = run(app, ["fabric", "verify", LAB, "--from", str(tmp_path), "--json"])
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["proven"], answer["broken_count"], answer["unexpected_count"]) == (1, False, 0, 1)


def test_failures_are_objects_where_json_was_asked_for() -> None:
    result = run(app, ["fabric", "show", "nowhere.yaml", "--json"])
    assert isinstance(result.exception, ConfigError)
    assert json.loads(result.stdout) == {"ok": False, "error": str(result.exception)}


def test_a_fabric_a_node_and_a_path_are_told_in_tables() -> None:
    lines = run(app, ["fabric", "show", LAB]).stdout.splitlines()
    assert "  nics           16" in lines
    assert [line.split()[0] for line in lines[lines.index("planes") + 2 :]] == ["0", "1", "2", "3"]
    lines = run(app, ["fabric", "show", LAB, "p0-t0-01"]).stdout.splitlines()
    head, *rows = lines[lines.index("links") + 1 : lines.index("entries") - 1]
    assert (head.split()[:2], len(rows)) == (["port", "to"], 8)
    lines = run(app, ["fabric", "path", LAB, "h0", "h15"]).stdout.splitlines()
    assert [line.split()[0] for line in lines[lines.index("hops") + 2 :]] == ["h0", "p0-t0-00", "p0-t1-00", "p0-t0-03"]
