import json
import random
from typing import Any

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.cables.lldp import Neighbour, read_neighbours
from tests.fabric.lldp_dumps import as_json0, as_lldpctl, as_nvue, as_sonic

LINES = [("swp1s0", "p0-t0-00", "Ethernet8"), ("swp2", "p0-t1-03", "Ethernet16")]
FORMS = {"lldpctl": as_lldpctl, "json0": as_json0, "sonic": as_sonic, "nvue": as_nvue}

# As lldpctl 1.0.16 printed it between two network namespaces.
REAL = """
{
  "lldp": {
    "interface": {
      "Ethernet0": {
        "via": "LLDP", "rid": "1", "age": "0 day, 00:00:03",
        "chassis": {
          "p0-t1-00": {
            "id": {"type": "mac", "value": "e6:ed:0c:b3:56:44"},
            "descr": "sys2",
            "capability": [{"type": "Bridge", "enabled": false}, {"type": "Station", "enabled": true}]
          }
        },
        "port": {
          "id": {"type": "mac", "value": "e6:ed:0c:b3:56:44"},
          "descr": "swp1s0", "ttl": "120",
          "auto-negotiation": {"supported": false, "enabled": false, "current": "10GbaseT - Four-pair Category 6A"}
        }
      }
    }
  }
}
"""


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("count", [0, 1, 2])
def test_every_form_says_the_same(form: str, count: int) -> None:
    found = read_neighbours(FORMS[form](LINES[:count]), form)
    assert [(each.interface, each.system, each.ports[0]) for each in found] == LINES[:count]


def test_a_real_dump_is_read_and_a_mac_is_no_name() -> None:
    assert read_neighbours(REAL, "real") == [Neighbour("Ethernet0", "p0-t1-00", ("swp1s0",))]


def test_a_chassis_without_name_has_none() -> None:
    document = json.loads(REAL)
    body = document["lldp"]["interface"]["Ethernet0"]
    body["chassis"] = body["chassis"]["p0-t1-00"]
    assert read_neighbours(json.dumps(document), "real")[0].system == ""


def test_a_table_in_one_object_is_read_too() -> None:
    text = json.dumps({"LLDP_ENTRY_TABLE": {"Ethernet0": {"lldp_rem_sys_name": "a", "lldp_rem_port_id": "swp1"}}})
    assert read_neighbours(text, "telemetry") == [Neighbour("Ethernet0", "a", ("swp1",))]


@pytest.mark.parametrize(("text", "said"), [("[", "not JSON"), ("[]", "expected an object"), ('{"a": 1}', "neither")])
def test_what_is_no_dump_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_neighbours(text, "x.json")


def test_damaged_dumps_are_refused_or_read_but_never_crash() -> None:
    dice = random.Random(7)
    for form in FORMS.values():
        whole = json.loads(form(LINES))
        for _ in range(2000):
            text = json.dumps(_damaged(whole, dice))
            try:
                found = read_neighbours(text, "x")
            except ConfigError:
                continue
            assert all(isinstance(each.system, str) and isinstance(each.interface, str) for each in found)


def _damaged(value: object, dice: random.Random) -> object:
    """Put something else in one random place."""
    if dice.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return dice.choice((None, 7, "x", [], {}, [[]], {"value": []}))
    copy: dict[str, object] | list[object] = dict(value) if isinstance(value, dict) else list(value)
    key = dice.choice(list(copy)) if isinstance(copy, dict) else dice.randrange(len(copy))
    copy[key] = _damaged(copy[key], dice)  # type: ignore[index]
    return copy


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_sub_interface_names_its_port_too(form: Any) -> None:
    (found,) = read_neighbours(form([("Ethernet1", "p0-t1-00", "Ethernet0.665")]), "dump")
    assert (found.interface, found.system) == ("Ethernet1", "p0-t1-00")
    assert [name for name in found.ports if name != "uplink"] == ["Ethernet0.665", "Ethernet0"]
