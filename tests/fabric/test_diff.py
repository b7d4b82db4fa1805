import json

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.diff import Difference, compare
from openmrc.fabric.export.targets import export
from openmrc.fabric.export.view import Options
from tests.fabric.small_fabrics import plan

MADE = plan("two-tier")
SWITCH = MADE.topology.node_named("p0-t0-00")


def exported(target: str) -> str:
    return next(iter(dict(export(MADE, target, Options(), [SWITCH])).values()))


def against(target: str, dump: str) -> Difference:
    return compare(MADE, SWITCH, target, dump, "dump", Options())


def test_a_missing_sid_and_a_wrong_interface_are_told_from_config_db() -> None:
    tables = json.loads(exported("sonic"))
    tables["SRV6_MY_SIDS"] = {}
    tables["STATIC_ROUTE"]["default|fcbb:bb00:e001::/48"]["ifname"] = "Ethernet0"
    tables["STATIC_ROUTE"]["default|10.0.0.0/8"] = {"nexthop": "10.0.0.1"}
    found = against("sonic", json.dumps(tables))
    assert found.missing == ["fcbb:bb00:1000::/48 un"]
    assert found.wrong == [
        {"planned": "fcbb:bb00:e001::/48 route Ethernet8", "installed": "fcbb:bb00:e001::/48 route Ethernet0"}
    ]
    assert found.extra == []


def test_a_route_that_should_be_the_switch_s_own_is_wrong() -> None:
    text = exported("frr").replace("   sid fcbb:bb00:1000::/48 locator MRC behavior uN\n", "")
    found = against("frr", text + "ipv6 route fcbb:bb00:1000::/48 fe80::1 p0\n")
    assert found.wrong == [{"planned": "fcbb:bb00:1000::/48 un", "installed": "fcbb:bb00:1000::/48 route p0"}]


def test_an_entry_given_twice_is_extra() -> None:
    text = exported("frr") + "ipv6 route fcbb:bb00:2000::/48 fe80::2:0 p5\n"
    assert against("frr", text).extra == ["fcbb:bb00:2000::/48 route p5"]


def test_frr_s_json_is_read() -> None:
    sids = {"fcbb:bb00:1000::/48": {"sid": "fcbb:bb00:1000::/48", "behavior": "uN"}}
    routes = {"fcbb:bb00:2000::/48": [{"protocol": "static", "nexthops": [{"interfaceName": "p4"}]}]}
    found = against("frr", json.dumps({**sids, **routes, "fe80::/64": [{"protocol": "connected"}]}))
    assert found.same == 2
    assert len(found.missing) == found.planned - 2
    assert not found.wrong


def test_a_seg6local_route_of_another_format_is_wrong() -> None:
    route = {"dst": "fcbb:bb00:1000::/48", "encap": "seg6local", "action": "End", "dev": "p0"}
    found = against("linux", json.dumps([route]))
    assert "without next-csid" in found.wrong[0]["installed"]


@pytest.mark.parametrize(
    ("target", "dump", "said"),
    [
        ("linux", "not json", "dump:1: not JSON"),
        ("linux", "{}", "expected the list"),
        ("linux", '[{"dst": "nowhere"}]', "'nowhere' is not an IPv6 prefix"),
        ("sonic", "[]", "expected CONFIG_DB"),
        ("sonic", '{"SRV6_MY_SIDS": {"MRC": {}}}', "expected LOCATOR"),
        ("frr", "sid fcbb::/48 locator MRC behavior uX", "behavior 'uX'; uN and uA"),
        ("eos", "", "linux, sonic|sonic, frr, linux can"),
    ],
)
def test_a_dump_that_cannot_be_read_is_refused(target: str, dump: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        against(target, dump)
