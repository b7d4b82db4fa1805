"""The endpoints of a host under a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.operations.page import host_source
from openmrc.operations.page.host_source import HostSource
from openmrc.operations.page.pictures import PageAction
from tests.ctl.endpoints import connected
from tests.ctl.test_endpoint_control import send


def test_a_host_without_endpoints_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="MRC_CTL=on"):
        HostSource(str(tmp_path))


def test_ports_paths_and_events_of_a_host_are_shown_and_a_port_can_be_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_source, "FRAME_SECONDS", 0.0)
    with connected(tmp_path) as (pair, _):
        source = HostSource(str(tmp_path))
        send(pair)
        frame = source.frame()
        assert frame.health == [0, 0, 0, 0]
        assert len(frame.evs) == 6
        (detail,) = source.cell(1)
        assert "drained" in source.act(PageAction(verb="drain", target=detail.name))
        drained = [source.frame() for _ in range(3)]
        assert drained[-1].health == [0, 2, 0, 0]
        assert {event.kind for frame in drained for event in frame.events} >= {"action", "port"}
        assert source.cell(1)[0].health == "DISABLED"
        source.act(PageAction(verb="repair", target=detail.name))
        assert source.frame().health == [0, 0, 0, 0]
        source.choose(frame.pairs[1].name)
        assert source.frame().pair == frame.pairs[1].name
        for wrong in (PageAction(verb="break", target=detail.name), PageAction(verb="drain", target="mrc_x port 1")):
            with pytest.raises(ConfigError):
                source.act(wrong)
