"""CONFIG_DB against the fields that SONiC's YANG models publish.

No package carries the models, so this is a schema of ours: fields, values and references as in
sonic-net/sonic-buildimage, `src/sonic-yang-models/yang-models` (master in 2026): sonic-port, sonic-interface,
sonic-srv6, sonic-static-route, sonic-queue, sonic-scheduler, sonic-wred-profile, sonic-port-qos-map, sonic-buffer-*,
sonic-trimming, sonic-device_metadata. `uA` with its `interface` and `adj` is of a later revision of sonic-srv6 than
the first.
"""

import importlib
import ipaddress
import json
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from openmrc.base.yaml_file import decode_text
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.export.cages import Cages
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import export
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from tests.fabric.small_fabrics import SMALL, plan


class Table(NamedTuple):
    """What a table may hold: a pattern for each part of the key, one for each field, which fields have to be there."""

    key: tuple[str, ...]
    fields: dict[str, str]
    mandatory: tuple[str, ...] = ()
    refers: Mapping[str, str] = MappingProxyType({})  # field, or place in the key -> table that has to know it


PORT, NUMBER, DSCP = r"Ethernet\d+", r"\d+", r"([0-9]|[1-5][0-9]|6[0-3])"
MAC, IPV6 = r"([0-9a-f]{2}:){5}[0-9a-f]{2}", r"[0-9a-f:]+"
MODELS = {
    "DEVICE_METADATA": Table(
        ("localhost",),
        {
            "hostname": r"[a-z0-9-]{1,63}", "mac": MAC, "type": "LeafRouter|SpineRouter", "hwsku": ".{1,255}",
            "platform": ".{1,255}",
        },
    ),
    "FEATURE": Table(("bgp|lldp",), {"state": "enabled"}),
    "NTP_SERVER": Table((r"[0-9a-f.:]+",), {"resolve_as": r"[0-9a-f.:]+"}),
    "MGMT_PORT": Table(("eth0",), {"alias": "eth0", "admin_status": "up"}),
    "MGMT_INTERFACE": Table(("eth0", r"[0-9a-f.:]+/\d+"), {"gwaddr": r"[0-9a-f.:]+"}),
    "PORT": Table(
        (PORT,),
        {
            "lanes": r"\d+(,\d+)*", "alias": ".{1,128}", "index": NUMBER, "speed": r"\d{4,7}", "fec": "rs|fc|none|auto",
            "mtu": r"\d{2,4}", "admin_status": "up|down", "description": ".{0,255}", "subport": "[0-8]",
        },
        ("lanes", "speed"),
    ),
    "BREAKOUT_CFG": Table((PORT,), {"brkout_mode": r"[1248]x\d+G"}, ("brkout_mode",), {"0": "PORT"}),
    "INTERFACE": Table((PORT,), {"ipv6_use_link_local_only": "enable|disable"}, (), {"0": "PORT"}),
    "NEIGH": Table((PORT, IPV6), {"neigh": MAC, "family": "IPv6"}, ("neigh",), {"0": "PORT"}),
    "SRV6_MY_LOCATORS": Table(
        ("[A-Za-z0-9]+",),
        {
            "prefix": IPV6, "block_len": NUMBER, "node_len": NUMBER, "func_len": NUMBER, "arg_len": NUMBER,
            "vrf": "default",
        },
        ("prefix",),
    ),
    "SRV6_MY_SIDS": Table(
        ("[A-Za-z0-9]+", r"[0-9a-f:]+/48"),
        {
            "action": "uN|uA|uDT46", "decap_vrf": "default", "decap_dscp_mode": "uniform|pipe", "interface": PORT,
            "adj": IPV6,
        },
        ("action", "decap_dscp_mode"),
        {"0": "SRV6_MY_LOCATORS", "interface": "PORT"},
    ),
    "STATIC_ROUTE": Table(
        ("default", r"[0-9a-f:]+/(48|32)"),
        {"nexthop": IPV6, "ifname": PORT, "distance": NUMBER, "nexthop-vrf": "default", "blackhole": "true|false"},
        (),
        {"ifname": "PORT"},
    ),
    "DSCP_TO_TC_MAP": Table((r"\w{1,32}",), {DSCP: "[0-7]"}),
    "TC_TO_QUEUE_MAP": Table((r"\w{1,32}",), {"[0-7]": "[0-7]"}),
    "TC_TO_DSCP_MAP": Table((r"\w{1,32}",), {"[0-7]": DSCP}),
    "PORT_QOS_MAP": Table(
        (PORT,), {"dscp_to_tc_map": ".+", "tc_to_queue_map": ".+", "tc_to_dscp_map": ".+"}, (),
        {
            "0": "PORT", "dscp_to_tc_map": "DSCP_TO_TC_MAP", "tc_to_queue_map": "TC_TO_QUEUE_MAP",
            "tc_to_dscp_map": "TC_TO_DSCP_MAP",
        },
    ),
    "SCHEDULER": Table((".+",), {"type": "DWRR|WRR|STRICT", "weight": r"[1-9]\d?|100"}),
    "WRED_PROFILE": Table(
        (r"[a-zA-Z0-9][-a-zA-Z0-9_]{0,31}",),
        {
            "ecn": "ecn_all", "wred_green_enable": "true|false", "green_min_threshold": NUMBER,
            "green_max_threshold": NUMBER, "green_drop_probability": r"\d{1,2}|100",
        },
    ),
    "QUEUE": Table(
        (PORT, "[0-7]"), {"scheduler": ".+", "wred_profile": ".+"}, (),
        {"0": "PORT", "scheduler": "SCHEDULER", "wred_profile": "WRED_PROFILE"},
    ),
    "BUFFER_POOL": Table((".+",), {"mode": "static|dynamic", "type": "ingress|egress|both"}, ("mode", "type")),
    "BUFFER_PROFILE": Table(
        (".+",), {"pool": ".+", "size": NUMBER, "dynamic_th": "-?[0-8]", "packet_discard_action": "drop|trim"},
        ("pool", "size"), {"pool": "BUFFER_POOL"},
    ),
    "BUFFER_QUEUE": Table((PORT, "[0-7]"), {"profile": ".+"}, ("profile",), {"0": "PORT", "profile": "BUFFER_PROFILE"}),
    "SWITCH_TRIMMING": Table(
        ("GLOBAL",),
        {"size": NUMBER, "dscp_value": f"{DSCP}|from-tc", "tc_value": "[0-7]", "queue_index": "[0-7]|dynamic"},
    ),
}  # fmt: skip


def wrong(tables: dict[str, Any]) -> list[str]:
    """Return what the models would refuse."""
    found = [f"unknown table {name}" for name in tables.keys() - MODELS.keys()]
    for name in tables.keys() & MODELS.keys():
        for key, row in tables[name].items():
            found += [f"{name} {key}: {why}" for why in _wrong_row(MODELS[name], key, row, tables)]
    return found


def _wrong_row(model: Table, key: str, row: dict[str, str], tables: dict[str, Any]) -> list[str]:
    parts = key.split("|")
    if len(parts) != len(model.key) or not all(map(re.fullmatch, model.key, parts)):
        return ["key"]
    found = [f"{field} is missing" for field in model.mandatory if field not in row]
    for field, value in row.items():
        pattern = next((allowed for named, allowed in model.fields.items() if re.fullmatch(named, field)), None)
        if pattern is None or not re.fullmatch(pattern, value):
            found.append(f"{field} {value}")
    values = {**row, **{str(place): part for place, part in enumerate(parts)}}
    refers = ((field, table) for field, table in model.refers.items() if field in values)
    return found + [
        f"{field} {values[field]} is not in {table}"
        for field, table in refers
        if values[field] not in tables.get(table, {})
    ]


def exported(name: str, options: ExportOptions | None = None) -> list[dict[str, Any]]:
    return [json.loads(text) for _, text in export(plan(name), "sonic", options or ExportOptions())]


@pytest.mark.parametrize("name", SMALL)
def test_every_table_is_as_the_models_say(name: str) -> None:
    options = ExportOptions(
        ntp=("10.0.0.1", "fd00::1"), management="10.91.0.0/16", hwsku="Some-SKU", platform="x86_64-some-r0"
    )
    for chosen in (ExportOptions(), options, ExportOptions(trimming=False)):
        for tables in exported(name, chosen):
            assert wrong(tables) == []


@pytest.mark.parametrize("change", [
    lambda tables: tables.pop("PORT"), lambda tables: tables["PORT"]["Ethernet0"].pop("lanes"),
    lambda tables: tables["QUEUE"]["Ethernet0|3"].update(scheduler="NONE"),
    lambda tables: tables["SWITCH_TRIMMING"]["GLOBAL"].update(dscp_value="64"),
    lambda tables: tables["STATIC_ROUTE"].update({"default|10.0.0.0/8": {}}),
])  # fmt: skip
def test_the_schema_finds_what_is_wrong(change: Any) -> None:
    tables = exported("two-tier")[0]
    change(tables)
    assert wrong(tables)


def test_a_un_lies_in_its_locator_as_the_model_and_the_daemon_insist() -> None:
    for tables in exported("bundles"):
        for key, sid in tables["SRV6_MY_SIDS"].items():
            locator, prefix = key.split("|")
            assert sid["action"] == "uN"
            assert prefix == f"{tables['SRV6_MY_LOCATORS'][locator]['prefix']}/48"


@pytest.mark.needs("sonic-yang")
@pytest.mark.parametrize("name", SMALL)
def test_sonics_own_models_take_every_export(name: str) -> None:
    checker = importlib.import_module("sonic_yang").SonicYang(os.environ["SONIC_YANG_MODELS"])
    checker.loadYangModel()
    for tables in exported(name):
        checker.loadData(configdbJson=tables)
        checker.validate_data_tree()
        assert not checker.tablesWithOutYang  # what no model describes is not validated


def test_next_hops_are_the_addresses_that_neighbours_make_of_their_macs() -> None:
    """With `ipv6_use_link_local_only` an address is the kernel's own (RFC 4291 appendix A), from the switch's MAC."""
    made = plan("three-tier")
    own = {}
    for tables in exported("three-tier"):
        metadata = tables["DEVICE_METADATA"]["localhost"]
        octets = bytes.fromhex(metadata["mac"].replace(":", ""))
        identifier = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
        own[metadata["hostname"]] = str(ipaddress.IPv6Address(bytes.fromhex("fe80000000000000") + identifier))
    assert len(set(own.values())) == len(own)
    for tables in exported("three-tier"):
        behind = {name: row["description"].split(" ")[0] for name, row in tables["PORT"].items()}
        for route in (route for route in tables["STATIC_ROUTE"].values() if route["blackhole"] == "false"):
            peer = behind[route["ifname"]]
            assert peer.startswith("h") or route["nexthop"] == own[peer]
    assert made.topology.nodes - made.topology.nics == len(own)


def test_packets_trimmed_on_the_last_hop_have_a_mark_of_their_own() -> None:
    tables = exported("two-tier")[0]
    assert tables["SWITCH_TRIMMING"]["GLOBAL"] == {
        "size": "128",
        "dscp_value": "from-tc",
        "tc_value": "5",
        "queue_index": "6",
    }
    assert tables["TC_TO_DSCP_MAP"] == {"MRC_LAST_HOP": {"5": "16"}, "MRC_FABRIC": {"5": "12"}}
    assert "5" not in tables["DSCP_TO_TC_MAP"]["MRC"].values()
    maps = {
        port["description"].split(" ")[0][:1]: tables["PORT_QOS_MAP"][name] for name, port in tables["PORT"].items()
    }
    assert (maps["h"]["tc_to_dscp_map"], maps["p"]["tc_to_dscp_map"]) == ("MRC_LAST_HOP", "MRC_FABRIC")
    spine = exported("two-tier")[3]
    assert spine["SWITCH_TRIMMING"]["GLOBAL"]["dscp_value"] == "12"


def test_ports_of_several_speeds_have_cages_lanes_and_fec_of_their_own() -> None:
    text = "name: mixed\nhosts: {count: 8}\nplanes:\n  - {host_gbps: 200, t0: {down: 4, up: 2, up_gbps: 400}, t1: {}}\n"
    made = usid_plan(build(decode_text(text, Fabric, "mixed")))
    tables = json.loads(
        next(iter(dict(export(made, "sonic", ExportOptions(cages=Cages(count=2)), [made.topology.nics])).values()))
    )
    ports = {name: (row["speed"], row["lanes"], row["fec"]) for name, row in tables["PORT"].items()}
    assert ports == {
        "Ethernet0": ("200000", "1,2", "rs"),
        "Ethernet2": ("200000", "3,4", "rs"),
        "Ethernet4": ("200000", "5,6", "rs"),
        "Ethernet6": ("200000", "7,8", "rs"),
        "Ethernet8": ("400000", "9,10,11,12", "rs"),
        "Ethernet12": ("400000", "13,14,15,16", "rs"),
    }
    assert tables["BREAKOUT_CFG"] == {"Ethernet0": {"brkout_mode": "4x200G"}, "Ethernet8": {"brkout_mode": "2x400G"}}
