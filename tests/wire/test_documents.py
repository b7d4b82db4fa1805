from openmrc.wire.documents import PAGE_FILE, PLUGIN_FILE, page
from openmrc.wire.headers import HEADERS
from openmrc.wire.wireshark import filter_name, plugin

AGAIN = "the table changed: run python -m openmrc.wire.documents"


def test_the_page_says_what_the_table_says() -> None:
    assert PAGE_FILE.read_text() == page().rstrip("\n") + "\n", AGAIN


def test_the_plugin_says_what_the_table_says() -> None:
    assert PLUGIN_FILE.read_text() == plugin(), AGAIN


def test_every_field_has_a_filter_name_of_its_own() -> None:
    names = [filter_name(header, field) for header in HEADERS for field in header.fields]
    assert len(set(names)) == len(names)
