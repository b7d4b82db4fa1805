"""The comparison of transports in a lab, as a bench."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.lab.compare import compare, plot, table
from openmrc.errors import ConfigError
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab


def test_each_transport_is_measured_and_drawn(lab: Lab, tmp_path: Path) -> None:
    breaker = Breaker(lab.name)
    runs, absent = compare(breaker, "h0", "h3", "h0 port 0", 0.3, ["mrc", "tcp"])
    assert [run.measures.kind for run in runs] == ["mrc", "tcp"]
    assert all(run.measures.whole and run.measures.before_gbps > 0 for run in runs)
    assert absent == {}
    assert table(runs).count("all whole") == 2
    plot(runs, tmp_path / "compare.svg", "a title")
    assert ElementTree.parse(tmp_path / "compare.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    with pytest.raises(ConfigError, match="'quic' is not one of"):
        compare(breaker, "h0", "h3", "h0 port 0", 0.3, ["quic"])
