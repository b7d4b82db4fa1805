from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.apps.transfer.names import check_names, fault_of, name_to_send
from openmrc.errors import ConfigError, PeerError

TRICKS = [
    "", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "..\\x", "nul\0", "line\nbreak", "bell\a", "\x7f", "\x85",
    "evil\u202etxt.exe", "zero\u2066x", "sep\u2028", "x" * 256, "é" * 128, "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", TRICKS)
def test_a_name_that_could_lead_elsewhere_or_fool_a_reader_is_refused(name: str) -> None:
    assert fault_of(name) is not None
    with pytest.raises(PeerError):
        check_names(["fine", name])


@pytest.mark.parametrize("name", ["a", "x" * 255, ".hidden", "-rf", "ärger.txt", "日本", "a b", "...", "~root", "👩‍🚀"])
def test_odd_but_harmless_names_pass(name: str) -> None:
    assert fault_of(name) is None


@given(st.text(max_size=300))
def test_a_name_that_passes_stays_in_its_folder(name: str) -> None:
    if fault_of(name) is None:
        path = Path("/some/folder") / name
        assert path.parent == Path("/some/folder")
        assert path.name == name


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(PeerError, match="'a' is named twice"):
        check_names(["a", "b", "a"])


def test_a_refused_name_is_shown_escaped() -> None:
    with pytest.raises(PeerError, match=r"'a\\x1b\[2J'"):
        check_names(["a\x1b[2J"])


def test_a_file_whose_name_is_no_text_cannot_be_sent() -> None:
    with pytest.raises(ConfigError, match="U\\+DC"):
        name_to_send(Path("bad\udcff"))
