from pathlib import Path

import msgspec
import pytest

from openmrc.base.yaml_file import decode_placed
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.shape import check

FABRICS = sorted((Path(__file__).parents[2] / "scenarios" / "fabrics").glob("*.yaml"))
GOOD = "name: x\nhosts: {count: 16}\nplanes:\n  - host_gbps: 100\n    t0: {down: 4, up: 4}\n    t1: {}\n"


def read(text: str) -> Fabric:
    fabric, where = decode_placed(text, Fabric, "f.yaml")
    check(fabric, where)
    return fabric


@pytest.mark.parametrize("path", FABRICS, ids=lambda path: path.stem)
def test_every_example_fabric_loads(path: Path) -> None:
    fabric = load(path)
    assert build(fabric).nics > 0


def test_a_fabric_survives_being_written_and_read() -> None:
    fabric = read(GOOD)
    assert msgspec.convert(msgspec.to_builtins(fabric), Fabric) == fabric


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("t1: {}", "t1: {}\n    colour: red"), r"f.yaml:7: .*unknown field `colour`"),
        (("count: 16", "count: -1"), r"f.yaml:2: .*>= 1"),
        (("down: 4", "down: four"), r"f.yaml:5: .*Expected `int.*t0.down"),
        (("host_gbps: 100", "host_gbps: 0"), r"f.yaml:4: .*> 0"),
        (("name: x", "name: x\nname: y"), r"f.yaml:2: key 'name' is given twice"),
        (("name: x", "name: [x"), r"not YAML"),
        (("hosts: {count: 16}\n", ""), r"`hosts` is missing"),
        (("down: 4, ", ""), r"t0.down .* is missing"),
        (("    t1: {}\n", ""), r"^f.yaml:5: plane 0: t0: up = 4, but nothing is above"),
        (("t0: {down: 4, up: 4}\n    t1: {}", "t0: {down: 4}"), r"4 T0s and nothing above.*t0.down = 16"),
        (("up: 4", "up: 4, bundle: 3"), r"up = 4 is not a multiple of bundle = 3; 3 would work"),
        (("up: 4", "up: 4, radix: 7"), r"^f.yaml:5: plane 0: t0.radix = 7 is odd; 6 would work"),
        (("up: 4", "up: 4, radix: 6"), r"a T0 needs 8 ports, t0.radix has 6; down: 3 and up: 3 would fit"),
        (("t1: {}", "t1: {radix: 2}"), r"^f.yaml:6: .*a T1 needs 4 ports, t1.radix has 2; 8 NICs would fit, or add t2"),
        (("t1: {}", "t1: {down: 2}"), r"t1.down = 2, but 4 T0s need 4 ports; 8 NICs would fit"),
        (("up: 4", "oversubscription: 3"), r"asks for 1.33333 uplinks; 1 uplinks \(oversubscription 4\)"),
        (("t1: {}", "t2: {}"), r"t2 without t1"),
        (("t1: {}", "t1: {up: 4}\n    t2: {}"), r"t1.down .* is missing"),
        (("count: 16", "count: 16, nics: 2, gpus: 3"), r"^f.yaml:2: hosts.gpus = 3 do not spread over 2 NICs; 2 would"),
        (("count: 16}", "count: 15}\nsites: {gbps: 100, link_us: 5}"), r"15 is odd and cannot be split; 16 can"),
        (("name: x", "name: x\nscale_up: {gpus: 5, gbps: 100}"), r"^f.yaml:2: .*15 or 20 GPUs would fit"),
        (
            ("count: 16}", "count: 16, gpus: 4}\nscale_up: {gpus: 6, gbps: 100}"),
            r"f.yaml:3: .* parts the 4 GPUs",
        ),
        (
            ("- host_gbps", "- {count: 64, host_gbps: 1, t0: {down: 16}}\n  - host_gbps"),
            r"^f.yaml:4: 65 planes",
        ),
        (("up: 4", "up: 3000000"), r"Expected `int` <= 65536, got 3000000 - at `\$.planes\[0\].t0.up`"),
        (("count: 16", "count: 4194304, nics: 2"), r"^f.yaml:2: 8388608 NICs are more than 4194304"),
        (("host_gbps: 100", "host_gbps: .nan"), r"^f.yaml:4: "),
        (("name: x", "name: x\nlinks: [{a: p, b: q, gbps: 1}]"), r"`links` without `nodes`"),
        (("name: x", "name: x\nnodes: [{name: p, kind: nic}]"), r"stand alone"),
    ],
)
def test_a_bad_fabric_is_refused_with_the_reason(change: tuple[str, str], said: str) -> None:
    assert read(GOOD)
    with pytest.raises(ConfigError, match=said):
        read(GOOD.replace(*change))


def test_oversubscription_gives_the_uplinks() -> None:
    fabric = load(next(path for path in FABRICS if path.stem == "rails"))
    from openmrc.fabric.model.shape import plane_shapes

    assert [shape.t0_up for shape in plane_shapes(fabric)] == [8, 8, 4]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("b: left, gbps: 100}", "b: lefd, gbps: 100}"), r":11: a link names 'lefd', .*; did you mean 'left'"),
        (("a: left, b: right", "a: left, b: left"), r":13: a link joins 'left' to itself"),
        (("{name: b,", "{name: a,"), r":6: two nodes are called 'a'"),
    ],
)
def test_a_list_of_links_that_makes_no_sense_is_refused_with_its_line(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    irregular = next(path for path in FABRICS if path.stem == "irregular").read_text()
    (tmp_path / "f.yaml").write_text(irregular.replace(*change))
    with pytest.raises(ConfigError, match=said):
        load(tmp_path / "f.yaml")
