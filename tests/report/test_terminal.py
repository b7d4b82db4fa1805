"""Lines of progress: now and then where nobody looks, in place at a terminal."""

import sys

import pytest

from openmrc.report.terminal import ProgressLine


def test_lines_of_progress_are_ten_seconds_apart_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProgressLine()
    for second in range(25):
        progress.show(f"second {second}", float(second))
    progress.close()
    assert capsys.readouterr().err == "second 10\nsecond 20\n"


def test_a_terminal_has_one_line_which_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    progress = ProgressLine()
    for tenth in range(6):
        progress.show(f"tenth {tenth}", tenth / 10)
    progress.close()
    assert capsys.readouterr().err == "\r\x1b[Ktenth 3\r\x1b[K"
