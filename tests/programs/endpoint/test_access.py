import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from openmrc.errors import ConfigError
from openmrc.live.host.nic_file import TOKEN_VARIABLE, VARIABLE
from openmrc.programs.endpoint.access import AccessPolicy, announcement, hosts_of, token_of
from openmrc.wire.entropy import EvPlacement

NIC = {"planes": [], "carriers": [], "link_gbps": 1.0, "base_rtt_us": 1.0, "target_delay_us": 1.0, "trimming": True}
TOKEN = "a token of both sides"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def test_a_token_on_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert token_of(None, None, False) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "of the environment")
    assert token_of(None, None, False) == "of the environment"
    assert token_of(TOKEN, None, False) == TOKEN
    assert token_of(None, None, True) == ""


def test_a_token_file_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert token_of(None, path, False) == TOKEN
    path.write_bytes(b"x" * 5000)
    with pytest.raises(ConfigError, match="larger than 4096 bytes"):
        token_of(None, path, False)


def test_a_wrong_token_names_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--token: .*5 characters"):
        token_of("short", None, False)
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(ConfigError, match=TOKEN_VARIABLE):
        token_of(None, None, False)
    with pytest.raises(ConfigError, match="--token and --no-token"):
        token_of(TOKEN, None, True)


def test_addresses_to_bind_are_a_list_and_all_means_every_one() -> None:
    assert hosts_of(None) is None
    assert hosts_of("127.0.0.1, ::1") == ("127.0.0.1", "::1")
    assert hosts_of("all") == ("",)
    with pytest.raises(ConfigError, match="empty address"):
        hosts_of("")


def announced(placement: EvPlacement, *hosts: str, token: str | None = None) -> str | None:
    addresses = [SimpleNamespace(ip="fcbb:bb00:e000:1000::")]
    nic = SimpleNamespace(sockets=SimpleNamespace(addresses=addresses, placement=placement))
    listener = SimpleNamespace(
        is_loopback=False, token="secret", port=18515, hosts=hosts, context=SimpleNamespace(nic=nic)
    )
    access = AccessPolicy(token=token)
    return announcement(listener, access)  # type: ignore[arg-type]


def test_the_peers_command_names_an_address_that_leads_here() -> None:
    planes = ("127.0.0.1", "::1", "fcbb:bb00:e000:1000::")
    here = os.uname().nodename
    assert announced(EvPlacement.UDP, *planes) == "on the other side: mrc perf fcbb:bb00:e000:1000:: --token secret"
    assert announced(EvPlacement.SRV6, "10.91.0.2") == "on the other side: mrc perf 10.91.0.2 --token secret"
    assert announced(EvPlacement.SRV6, "::") == f"on the other side: mrc perf {here} --token secret"
    said = announced(EvPlacement.SRV6, *planes) or ""
    assert "hosts of the same T0 only" in said
    assert "--bind ADDR" in said


def test_where_plane_addresses_do_not_lead_here_the_peers_command_is_told_for_a_given_token_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert announced(EvPlacement.UDP, "10.91.0.2", token=TOKEN) is None
    said = "on the other side: mrc perf {} (and the same token)"
    assert announced(EvPlacement.SRV6, "10.91.0.2", token=TOKEN) == said.format("10.91.0.2")
    path = tmp_path / "nic.json"
    monkeypatch.setenv(VARIABLE, str(path))
    for name, told in (("localhost", "localhost"), ("no-such-host.invalid", os.uname().nodename)):
        path.write_bytes(msgspec.json.encode(NIC | {"name": name}))
        assert announced(EvPlacement.SRV6, "", token=TOKEN) == said.format(told)
