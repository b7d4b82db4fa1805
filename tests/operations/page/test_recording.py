"""A recorded run: one file, no event lost when frames are thinned, and no name can break out of it."""

from __future__ import annotations

import json

import msgspec
import pytest

from openmrc.operations.page import recording
from openmrc.operations.page.pictures import Frame
from openmrc.operations.page.recording import PageRecording
from tests.operations.page.sources_of_tests import CountingSource


def test_thinning_keeps_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_FRAMES", 10)
    source, kept = CountingSource(), PageRecording(CountingSource().picture())
    for _ in range(95):
        kept.add(source.frame())
    frames = [msgspec.json.decode(each, type=Frame) for each in kept.frames()]
    assert len(frames) <= 10
    assert [event.text for frame in frames for event in frame.events] == [f"event {n}" for n in range(1, 96)]
    assert kept.dropped + len(frames) == 95
    assert frames[-1].number == 95


def test_the_file_holds_the_run_and_no_name_ends_its_script() -> None:
    source = CountingSource()
    kept = PageRecording(source.picture())
    kept.add(source.frame())
    text = kept.page()
    inside = text.partition('id="recorded">')[2].partition("</script>")[0]
    document = json.loads(inside)
    assert document["frames"][0]["pairs"][1]["name"] == "</script><script>alert(1)</script>"
    assert "alert(1)</script>" not in text


def test_a_late_viewer_waits_no_longer_than_told() -> None:
    kept = PageRecording(CountingSource().picture())
    assert kept.wait(0, 0.01) == (b"", 0)
