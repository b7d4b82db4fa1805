"""A fabric in NetBox over its REST API: complete, continued, and without what another fabric owns."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmrc.errors import MrcError
from openmrc.fabric.cabling.cables import Cables, list_cables
from openmrc.fabric.cabling.netbox import NetboxNaming
from openmrc.fabric.cabling.netbox_push import PushedTable, connect, push
from openmrc.fabric.model.build import build
from tests.cli.in_process import run_here
from tests.fabric.netbox_server import TOKEN, Netbox, serve
from tests.fabric.small_fabrics import SMALL, fabric

pytestmark = pytest.mark.needs("pynetbox")
HALL = NetboxNaming("hall 2", prefix="a-")


@pytest.fixture
def netbox() -> Netbox:
    return Netbox()


@pytest.fixture
def url(netbox: Netbox) -> Iterator[str]:
    server = serve(netbox)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def cables_of(name: str = "two-tier") -> Cables:
    return list_cables(build(fabric(name)))


def pushed(url: str, cables: Cables, naming: NetboxNaming = HALL) -> dict[str, PushedTable]:
    return push(cables, naming, connect(url, TOKEN), lambda *_: None)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_everything_is_created_as_the_schema_says_and_joined_as_planned(name: str, netbox: Netbox, url: str) -> None:
    cables = cables_of(name)
    found = pushed(url, cables)
    made = {table: len(rows) for table, rows in netbox.tables.items()}
    assert {table: (each.there, each.created) for table, each in found.items()} == {
        table: (0, count) for table, count in made.items()
    }
    assert made["interfaces"] == 2 * len(cables)
    assert made["cables"] == len(cables)
    devices, interfaces = netbox.tables["devices"], netbox.tables["interfaces"]
    for cable in netbox.tables["cables"].values():
        ends = [interfaces[cable[f"{end}_terminations"][0]["object_id"]] for end in "ab"]
        label = [each.rpartition(":")[0] for each in cable["label"].split("=")]
        for end, node in zip(ends, label, strict=True):
            assert devices[end["device"]]["name"] == f"a-{node.split('-n')[0]}"


def test_a_second_run_creates_nothing(netbox: Netbox, url: str) -> None:
    pushed(url, cables_of())
    netbox.requests.clear()
    found = pushed(url, cables_of())
    assert all(each.created == 0 and each.there for each in found.values())
    assert not [request for request in netbox.requests if request[0] == "POST"]


@pytest.mark.parametrize("posts", range(11))
def test_a_run_that_netbox_ends_is_continued_by_the_next(posts: int, netbox: Netbox, url: str) -> None:
    netbox.posts_until_failure = posts
    with pytest.raises(MrcError, match=r"503.*the same command continues from here"):
        pushed(url, cables_of())
    assert sum(len(rows) for rows in netbox.tables.values()) == sum(
        count for how, _, count in netbox.requests if how == "POST"
    )
    found = pushed(url, cables_of())
    assert {name: each.there + each.created for name, each in found.items()} == {
        name: len(rows) for name, rows in netbox.tables.items()
    }
    assert len(netbox.tables["cables"]) == len(cables_of())


def test_what_was_created_and_not_answered_is_not_created_again(netbox: Netbox, url: str) -> None:
    netbox.cut_after_post = 6
    with pytest.raises(MrcError, match="is the address right"):
        pushed(url, cables_of())
    pushed(url, cables_of())
    assert len(netbox.tables["interfaces"]) == 2 * len(netbox.tables["cables"]) == 2 * len(cables_of())


def test_two_fabrics_with_prefixes_stand_side_by_side_in_a_netbox(netbox: Netbox, url: str) -> None:
    pushed(url, cables_of())
    pushed(url, cables_of("three-tier"), NetboxNaming("hall 3", prefix="b-"))
    assert len(netbox.tables["cables"]) == len(cables_of()) + len(cables_of("three-tier"))


def test_a_device_of_another_fabric_with_the_same_name_is_refused(netbox: Netbox, url: str) -> None:
    pushed(url, cables_of())
    device = next(row for row in netbox.tables["devices"].values() if row["name"] == "a-h1")
    device["position"] += 8
    with pytest.raises(MrcError, match=r"another device a-h1 .*position.*--prefix"):
        pushed(url, cables_of())


def test_a_port_with_another_cable_is_named(netbox: Netbox, url: str) -> None:
    pushed(url, cables_of())
    first, second = (netbox.tables["cables"][number] for number in (1, 2))
    first["b_terminations"], second["b_terminations"] = second["b_terminations"], first["b_terminations"]
    for cable in (first, second):
        netbox.cabled[cable["b_terminations"][0]["object_id"]] = cable["id"]
    with pytest.raises(MrcError, match=r"a port of h0:0=p0-t0-00:0 has another cable"):
        pushed(url, cables_of())


def test_progress_ends_with_every_row_of_every_table(netbox: Netbox, url: str) -> None:
    seen: dict[str, tuple[int, int]] = {}
    cables = cables_of()
    push(cables, HALL, connect(url, TOKEN), lambda table, done, total: seen.update({table: (done, total)}))
    assert list(seen) == list(netbox.tables)
    assert all(done == total for done, total in seen.values())
    assert seen["cables"] == (len(cables), len(cables))


def test_an_old_netbox_and_a_wrong_token_and_no_netbox_are_named(netbox: Netbox, url: str) -> None:
    with pytest.raises(MrcError, match="403"):
        connect(url, "no")
    netbox.version = "3.7.8"
    with pytest.raises(MrcError, match=r"is NetBox 3\.7\.8; 4\.0 or newer is needed"):
        connect(url, TOKEN)
    with pytest.raises(MrcError, match="is the address right"):
        connect("http://127.0.0.1:9", TOKEN)


def test_the_command_pushes_with_a_token_from_a_file(netbox: Netbox, url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    fabric_file = "scenarios/fabrics/lab-slow.yaml"
    code, out, err = run_here("fabric", "netbox", fabric_file, "--push", url, "--token-file", token, "--json")
    assert code == 0, err
    assert f'"cables":{{"there":0,"created":{len(netbox.tables["cables"])}}}' in out
    assert TOKEN not in out + err


def test_the_command_wants_files_or_a_netbox_and_a_token(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETBOX_TOKEN", raising=False)
    fabric_file = "scenarios/fabrics/lab-slow.yaml"
    for arguments, text in (
        ((), "give --out FOLDER for files, or --push URL"),
        (("--push", "netbox.example"), "expected an address such as https://netbox.example"),
        (("--push", url), "--token-file FILE, or NETBOX_TOKEN"),
    ):
        code, _, err = run_here("fabric", "netbox", fabric_file, *arguments)
        assert code == 2
        assert text in err
