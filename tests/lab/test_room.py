"""What a lab needs of the machine is known before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.core import host_memory
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import choices
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build, load
from openmrc.lab import lifetime, namespaces
from openmrc.lab.layout import Lab, plan_lab
from tests.lab.conftest import fabric_file


@pytest.fixture
def small(tmp_path: Path) -> Lab:
    return plan_lab("small", usid_plan(build(load(fabric_file(tmp_path, "small")))))


def test_paths_are_those_that_the_routes_will_have(small: Lab) -> None:
    nics = range(small.topology.nics)
    pairs = [(a, b) for a in nics for b in nics if a != b]
    counted = sum(len(list(choices(shape, *pair))) for shape in small.topology.planes for pair in pairs)
    assert lifetime.tunnel_paths(small) == counted == 2 * (4 * 1 + 8 * 2)


def test_a_lab_without_enough_memory_is_refused_with_what_would_fit(
    small: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifetime.check_room(small)
    monkeypatch.setattr(host_memory, "available_bytes", lambda: lifetime.needed_kb(small) // 4 * 1024)
    with pytest.raises(ConfigError, match=r"small: about 0\.0 GB are needed for 40 paths.*about 2 NICs would fit"):
        lifetime.check_room(small)


def test_a_lab_of_more_namespaces_than_are_left_is_refused(
    small: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lifetime, "_MOST_NAMESPACES", tmp_path / "most")
    (tmp_path / "most").write_text(f"{namespaces.count() + 12}\n")
    with pytest.raises(ConfigError, match=r"13 namespaces needed, 12 left of user.max_net_namespaces"):
        lifetime.check_room(small)
