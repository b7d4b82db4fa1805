import pytest

from openmrc.errors import ConfigError
from openmrc.live.host.planes import (
    EndpointSide,
    interface_planes,
    is_this_machine,
    local_planes,
    loopback_planes,
    planes_beside,
)
from openmrc.programs.endpoint.opening import EndpointOptions, open_endpoint


def test_both_sides_of_a_number_of_planes_have_addresses_of_their_own() -> None:
    assert loopback_planes(3, EndpointSide.SERVER) == ["127.0.1.1", "127.0.2.1", "127.0.3.1"]
    assert not set(loopback_planes(16, EndpointSide.SERVER)) & set(loopback_planes(16, EndpointSide.CLIENT))


def test_addresses_are_taken_as_given() -> None:
    assert local_planes("10.0.0.1, [::1]:9000,", EndpointSide.SERVER) == ["10.0.0.1", "[::1]:9000"]


def test_interfaces_and_hosts_are_planes_by_name() -> None:
    assert local_planes("lo, localhost,10.0.0.1", EndpointSide.SERVER) == ["127.0.0.1", "127.0.0.1", "10.0.0.1"]
    with pytest.raises(
        ConfigError, match=r"'nosuch0\.invalid' is no address, no interface \(.*lo.*\), and no host's name"
    ):
        local_planes("nosuch0.invalid", EndpointSide.SERVER)


@pytest.mark.parametrize("count", ["0", "17"])
def test_a_number_of_planes_out_of_range_is_refused(count: str) -> None:
    with pytest.raises(ConfigError, match=r"--planes: .* expected 1 to 16"):
        local_planes(count, EndpointSide.SERVER)


def test_a_second_endpoint_gets_the_other_loopback_addresses_or_the_same_addresses_without_ports() -> None:
    assert planes_beside(loopback_planes(2, EndpointSide.CLIENT)) == loopback_planes(2, EndpointSide.SERVER)
    assert planes_beside(["127.44.1.1:9001", "[::1]:9000", "::1"]) == ["127.44.1.1", "::1", "::1"]


def test_a_server_leaves_the_choice_and_a_client_beside_it_gets_ports() -> None:
    assert local_planes(None, EndpointSide.SERVER) == []
    assert local_planes(None, EndpointSide.CLIENT, "192.0.2.1") == []
    assert local_planes(None, EndpointSide.CLIENT, "localhost")


def test_two_endpoints_of_one_side_get_ports_of_their_own() -> None:
    options = EndpointOptions(("127.44.2.1", "127.44.3.1"))
    with open_endpoint(options) as first, open_endpoint(options) as second:
        assert not set(first.query_device().planes) & set(second.query_device().planes)


def test_a_port_that_the_user_named_is_not_replaced() -> None:
    options = EndpointOptions(("127.44.4.1:9001",))
    with open_endpoint(options), pytest.raises(ConfigError, match=r"plane 0 cannot receive on 127.44.4.1:9001"):
        open_endpoint(options)


def test_this_machine_is_known_by_its_addresses() -> None:
    assert is_this_machine("localhost")
    assert is_this_machine("127.3.2.1")
    assert not is_this_machine("192.0.2.1")


def test_an_unknown_interface_is_refused_with_the_available_ones() -> None:
    with pytest.raises(ConfigError, match=r"no interface 'nosuch0' .*; available: .*lo"):
        interface_planes("nosuch0", 0)
    assert interface_planes("lo", 0) == ["127.0.0.1"]
    with pytest.raises(ConfigError, match="--gid-index: lo has addresses 0 to"):
        interface_planes("lo", 99)
