"""Learning a fabric from the files of its switches. The oracle is the fabric that the files were made of."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS, write_all
from openmrc.fabric.export.view import views
from openmrc.fabric.model.build import build, load, text_of
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.proof.diff import read_folder, tables_of
from openmrc.fabric.proof.verify import Verdict, verify
from openmrc.fabric.readback.learn import learn
from tests.fabric import split_sonic
from tests.fabric.lldp_dumps import as_lldpctl, as_nvue, as_sonic, heard, plugged
from tests.fabric.renamed_fabrics import renamed
from tests.fabric.small_fabrics import SMALL, fabric, plan

UNDOCUMENTED = (("shifting-downlinks", "cumulus"), ("shifting-downlinks", "eos"))
ROUND_TRIPS = [(name, target) for name in SMALL for target in TARGETS if (name, target) not in UNDOCUMENTED]
EXHAUSTIVE, LONG = pytest.mark.exhaustive, pytest.mark.long


def exported(described: Fabric, target: str, folder: Path) -> dict[str, str]:
    list(write_all(usid_plan(build(described)), target, ExportOptions(), folder))
    return {file.name: file.read_text() for file in folder.iterdir()}


@pytest.mark.parametrize(("name", "target"), ROUND_TRIPS)
def test_an_export_is_learned_as_the_fabric_that_was_exported(name: str, target: str, tmp_path: Path) -> None:
    exported(fabric(name), target, tmp_path)
    learned = learn(tmp_path, name)
    assert (learned.irregular, learned.unknown) == ("", [])
    assert learned.fabric == fabric(name)


def round_trip(name: str, target: str, seed: int, folder: Path) -> None:
    before = exported(renamed(fabric(name), seed), target, folder / "before")
    learned = learn(folder / "before", name)
    assert (learned.irregular, learned.unknown) == ("", [])
    (folder / "fabric.yaml").write_text(text_of(learned.fabric, "learned"))
    assert exported(load(folder / "fabric.yaml"), target, folder / "after") == before


@pytest.mark.parametrize(("name", "target"), ROUND_TRIPS)
def test_shuffled_names_and_usids_are_exported_again_byte_for_byte(name: str, target: str, tmp_path: Path) -> None:
    round_trip(name, target, 1, tmp_path)


@pytest.mark.parametrize("target", ["linux", "frr"])
def test_ports_with_macs_of_their_own_are_exported_again(target: str, tmp_path: Path) -> None:
    described = renamed(fabric("bundles"), 1)
    topology = build(described)
    macs = [
        tuple(f"0a:00:00:00:{node:02x}:{port:02x}" for port in range(max(1, len(device.ports))))
        for node, device in enumerate(described.found)
    ]
    devices = [msgspec.structs.replace(device, macs=own) for device, own in zip(described.found, macs, strict=True)]
    described = msgspec.structs.replace(described, found=tuple(devices))
    before = exported(described, target, tmp_path / "before")
    learned = learn(tmp_path / "before", "bundles").fabric
    assert learned.found[topology.nics].macs == macs[topology.nics]
    assert exported(learned, target, tmp_path / "after") == before


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=EXHAUSTIVE if seed < 4 else LONG) for seed in range(2, 12)])
@pytest.mark.parametrize(("name", "target"), ROUND_TRIPS)
def test_any_shuffle_is_exported_again(name: str, target: str, seed: int, tmp_path: Path) -> None:
    round_trip(name, target, seed, tmp_path)


def proven(made: UsidPlan, folder: Path) -> Verdict:
    found = list(read_folder(made, folder, ExportOptions()))
    assert not any(each.dead or each.silent for each in found)
    return verify(made, tables_of(made.topology, found))


@pytest.mark.parametrize("decapsulating", [False, True])
def test_configurations_split_between_sonic_and_frr_are_learned_and_proven(decapsulating: bool, tmp_path: Path) -> None:
    split_sonic.write_fabric(tmp_path, decapsulating)
    learned = learn(tmp_path, "public")
    assert (learned.irregular, learned.doubts) == ("", [])
    made = usid_plan(build(learned.fabric))
    topology = made.topology
    assert (topology.nics, len(topology.planes)) == (split_sonic.LEAVES, split_sonic.PLANES)
    assert topology.name(topology.nics) == "p0-leaf00"
    leaf = topology.node_named("p1-leaf02")
    assert [topology.port_name(leaf, port) for port in range(3)] == ["Ethernet36", "Ethernet0", "Ethernet4"]
    assert [sids.t0_sid(2, 0) for sids in made.planes] == [0x22, 0x22]
    assert made.planes[1].downlink_sid(2, 0) == 0xE009
    assert proven(made, tmp_path).proven


def test_lines_that_no_path_uses_are_listed_by_file_and_line(tmp_path: Path) -> None:
    split_sonic.write_fabric(tmp_path, decapsulating=True)
    learned = learn(tmp_path, "public")
    file = tmp_path / "p0-leaf01" / "frr.conf"
    lines = file.read_text().splitlines()
    listed = {each.line for each in learned.unknown if each.file == str(file)}
    words = ("uA interface Ethernet0", "uA interface Ethernet4", ":d001::", ":dfff::", "route fc00:0000:20", "0:22::")
    assert listed == {number for number, line in enumerate(lines, start=1) if any(word in line for word in words)}


def test_a_route_that_goes_after_learning_is_missed(tmp_path: Path) -> None:
    split_sonic.write_fabric(tmp_path)
    made = usid_plan(build(learn(tmp_path, "public").fabric))
    file = tmp_path / "p0-spine01" / "frr.conf"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if "route fc00:0000:21::" not in line) + "\n")
    verdict = proven(made, tmp_path)
    assert not verdict.proven
    assert [(each["switch"], each["entry"]) for each in verdict.broken] == [("p0-spine01", "fc00:0:21::/48")]


def kernel_dump(made: UsidPlan, folder: Path) -> None:
    """Write what `ip -6 -j route` shows on every switch."""
    folder.mkdir()
    for switch in views(made, ExportOptions()):
        rows = []
        for prefix, action, port in switch.entries:
            if action is Action.UN:
                rows.append({"dst": prefix, "encap": "seg6local", "action": "End", "flavors": ["next-csid"],
                             "lblen": 32, "nflen": 16, "dev": "sr0", "flags": []})  # fmt: skip
            else:
                rows.append({"dst": prefix, "gateway": switch.peer_addresses[port], "dev": f"p{port}", "flags": []})
        rows.append({"type": "blackhole", "dst": switch.block, "dev": "lo", "flags": []})
        (folder / f"{switch.name}.routes.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("form", [as_lldpctl, as_sonic, as_nvue])
@pytest.mark.parametrize("name", ["two-tier", "bundles", "three-tier", "unlike-planes", "one-block"])
def test_routes_of_kernels_and_lldp_are_enough(name: str, form: Callable[..., str], tmp_path: Path) -> None:
    made = plan(name)
    kernel_dump(made, tmp_path / "dumps")
    for system, lines in heard(made.topology, plugged(made.topology), "linux").items():
        (tmp_path / "dumps" / f"{system}.lldp.json").write_text(form(lines))
    learned = learn(tmp_path / "dumps", name)
    assert (learned.irregular, learned.unknown) == ("", [])
    found = build(learned.fabric)
    assert [found.name(node) for node in range(found.nodes)] == [
        made.topology.name(node) for node in range(found.nodes)
    ]
    assert (found.link_source == made.topology.link_source).all()
    assert (found.link_port == made.topology.link_port).all()
    assert verify(usid_plan(found)).proven


def unplug(folder: Path, *ends: tuple[str, int, int]) -> None:
    """Take ports, and the routes out of them, out of exports for FRR."""
    for switch, port, peer in ends:
        file = folder / f"{switch}.conf"
        text = file.read_text().replace(f"ipv6 route fcbb:bb00:{peer}::/48", "! ipv6 route")
        head, _, tail = text.partition(f"interface p{port}\n")
        file.write_text(head + tail.partition("exit\n!\n")[2])


def test_a_missing_cable_is_planned_and_its_paths_are_named(tmp_path: Path) -> None:
    exported(fabric("two-tier"), "frr", tmp_path)
    unplug(tmp_path, ("p0-t0-01", 5, 2001), ("p0-t1-01", 1, 1001))
    learned = learn(tmp_path)
    assert learned.irregular == ""
    assert learned.doubts == ["a cable of p0-t0-01 and p0-t1-01 is missing; planned as port missing0 of both"]
    made = usid_plan(build(learned.fabric))
    assert verify(made).proven
    found = verify(made, tables_of(made.topology, list(read_folder(made, tmp_path, ExportOptions(), None, map))))
    assert {(each["switch"], each["entry"]) for each in found.broken} == {
        ("p0-t0-01", "fcbb:bb00:2001::/48"),
        ("p0-t1-01", "fcbb:bb00:1001::/48"),
    }
    assert found.paths - found.delivered == 2 * 4 * 8  # one of four T1s, of four NICs to the other eight, both ways


def test_a_fabric_that_misses_many_cables_is_kept_as_a_graph(tmp_path: Path) -> None:
    exported(fabric("two-tier"), "frr", tmp_path)
    unplug(tmp_path, ("p0-t0-01", 5, 2001), ("p0-t1-01", 1, 1001), ("p0-t0-02", 6, 2002), ("p0-t1-02", 2, 1002))
    learned = learn(tmp_path)
    assert (learned.doubts, learned.irregular) == (
        [f"{2 * (12 + 12 + 12) - 4} routes to uSIDs were followed from switch to switch: all arrive"],
        "p0-t0-01 is not joined to p0-t1-01 of its pod, and 1 more pair is not",
    )
    topology, whole = build(learned.fabric), build(fabric("two-tier"))
    assert topology.links == whole.links - 4
    assert set(topology.names) == {whole.name(node) for node in range(whole.nodes)}


def sent(tables: list[dict[int, int | str]], here: int, sid: int) -> str:
    """Return what becomes of a packet to the uSID of a switch, hop by hop, in a graph of so many switches."""
    for _ in tables:
        if here == sid:
            return "arrives"
        hop = tables[here].get(sid, "no entry")
        if isinstance(hop, str):
            return f"ends at s{here}: {hop}"
        here = hop
    return "loops"


@pytest.mark.parametrize("seed", range(8))
def test_routes_of_a_graph_are_followed_as_packets_go(seed: int, tmp_path: Path) -> None:
    """The oracle sends a packet from each switch that has a route."""
    draw, count = random.Random(seed), 7
    near: dict[int, set[int]] = {node: {(node - 1) % count, (node + 1) % count} for node in range(count)}
    for one, two in (draw.sample(range(count), 2) for _ in range(3)):
        near[one].add(two)
        near[two].add(one)
    tables: list[dict[int, int | str]] = [{} for _ in near]
    for node, table in enumerate(tables):
        for sid in set(near) - {node}:
            hops: list[int | str] = (
                [sid] if sid in near[node] and draw.random() < 0.7 else [*near[node], "blackhole", "no entry"]
            )
            if (hop := draw.choice(hops)) != "no entry":
                table[sid] = hop
        routes = [
            f"fcbb:bb00:{sid + 1:x}::/48 {f's{hop}' if isinstance(hop, int) else hop}" for sid, hop in table.items()
        ]
        ports = [f"interface s{peer}\n description s{peer} s{node}\nexit" for peer in sorted(near[node])]
        own = f"sid fcbb:bb00:{node + 1:x}::/48 locator MRC behavior uN"
        lines = [
            "frr version 10.7",
            *(f"ipv6 route {each}" for each in routes),
            "ipv6 route fcbb:bb00:ff::/48 host",
            *ports,
        ]
        tree = [
            f"interface host\n description h{node} port 0\nexit",
            "segment-routing\n srv6\n  static-sids",
            f"   {own}",
            "  exit\n exit\nexit",
        ]
        (tmp_path / f"s{node}.conf").write_text("\n".join([*lines, *tree, ""]))
    starts = [(node, sid) for node, table in enumerate(tables) for sid, hop in table.items() if isinstance(hop, int)]
    fates = [sent(tables, *start) for start in starts]
    learned = learn(tmp_path)
    assert learned.irregular
    lost = [each for each in fates if each != "arrives"]
    said = f"{len(lost)} do not arrive" if lost else "all arrive"
    assert f"{len(starts) + count} routes to uSIDs were followed from switch to switch: {said}" in learned.doubts
    named = [each for each in learned.doubts if " ends at " in each or " loops through " in each]
    ends = {
        (f"fcbb:bb00:{sid + 1:x}::/48 {fate}")
        for (_, sid), fate in zip(starts, fates, strict=True)
        if fate.startswith("ends")
    }
    assert {each.rpartition(" (")[0] for each in named if " ends at " in each} == ends
    assert any(" loops through " in each for each in named) == ("loops" in fates)


def test_what_cannot_be_read_is_listed_and_the_rest_is_learned(tmp_path: Path) -> None:
    exported(fabric("two-tier"), "sonic", tmp_path)
    (tmp_path / "notes.txt").write_text("ask Ann about row 7\n")
    (tmp_path / "p0-t0-00.routes.json").write_text("[")
    learned = learn(tmp_path, "two-tier")
    assert learned.fabric == fabric("two-tier")
    assert [each.file for each in learned.unknown] == [
        str(tmp_path / "notes.txt"),
        str(tmp_path / "p0-t0-00.routes.json"),
    ]


@pytest.mark.parametrize("name", ["two-tier", "one-block"])
def test_a_switch_without_files_is_named(name: str, tmp_path: Path) -> None:
    exported(fabric(name), "eos", tmp_path)
    (tmp_path / "p1-t1-03.eos").unlink()
    learned = learn(tmp_path)
    assert "p1-t1-03 is behind 3 ports, p1-t0-00:Ethernet1/8 first: no file of it" in learned.doubts


def damage(folder: Path, draw: random.Random) -> None:
    """Delete, repeat or alter some lines, words and characters of files, or a file."""
    for _ in range(draw.randint(1, 4)):
        file = draw.choice(sorted(folder.iterdir()))
        lines = file.read_text().splitlines()
        at = draw.randrange(len(lines))
        words = lines[at].split(" ")
        word = draw.choice(["", "x", "0", "-1", "::", "fe80::1/64", "fcbb:bb00:1000::/48", "9" * 12, "auto", "\u00e9"])
        word_at = draw.randrange(len(words))
        match draw.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, draw.choice(lines))
            case 2:
                lines[at] = " ".join([*words[:word_at], word, *words[word_at + 1 :]])
            case 3:
                lines[at] = " ".join([*words[:word_at], *words[word_at + 1 :]])
            case 4:
                lines[at] += draw.choice('abc:{}/"[ 0')
            case _:
                del lines[at + 1 :]
        file.write_text("\n".join(lines) + "\n")


def learned_whatever(target: str, seed: int, folder: Path) -> None:
    draw = random.Random(seed)
    exported(renamed(fabric(draw.choice(["two-tier", "bundles", "two-sites"])), seed), target, folder / "site")
    damage(folder / "site", draw)
    try:
        learned = learn(folder / "site")
    except ConfigError:
        return
    (folder / "fabric.yaml").write_text(text_of(learned.fabric, "learned"))
    found = build(load(folder / "fabric.yaml"))
    if not learned.irregular:
        assert verify(usid_plan(found)).proven


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_give_a_fabric_that_loads_or_an_error_of_ours(target: str, tmp_path: Path) -> None:
    for seed in range(4):
        learned_whatever(target, seed, tmp_path / str(seed))


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(4, 24), id="more", marks=EXHAUSTIVE), pytest.param(range(24, 104), id="many", marks=LONG)],
)
@pytest.mark.parametrize("target", TARGETS)
def test_any_damage_gives_a_fabric_that_loads_or_an_error_of_ours(target: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        learned_whatever(target, seed, tmp_path / str(seed))


def test_a_folder_without_switches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file in it is a switch's configuration"):
        learn(tmp_path)
    with pytest.raises(ConfigError, match="not a folder"):
        learn(tmp_path / "none")
