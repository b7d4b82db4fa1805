"""A small lab for the tests that need one, removed whatever happens, and the reasons to skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmrc.lab import lifetime, namespaces, record
from openmrc.lab.layout import Lab
from tests.needs import require

FABRIC = """
name: {name}
hosts: {{count: 4}}
planes:
  - count: {planes}
    host_gbps: 0.1
    t0: {{down: 2, up: 2, buffer_kb: 128}}
    t1: {{buffer_kb: 128}}
"""


@pytest.fixture(scope="session")
def lab_rights() -> None:
    require("lab")


def fabric_file(folder: Path, name: str, planes: int = 2, more: str = "") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(FABRIC.format(name=name, planes=planes) + more)
    return path


def remove(name: str) -> None:
    if namespaces.of_lab(name) or name in record.recorded():
        lifetime.down(name)


@pytest.fixture
def lab_name(lab_rights: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for a lab of this test alone."""
    name = f"t{os.getpid()}-{abs(hash(request.node.name)) % 1000}"
    yield name
    remove(name)


@pytest.fixture(scope="module")
def lab(lab_rights: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab of four hosts on two planes, up for one file of tests."""
    name = f"t{os.getpid()}-{request.module.__name__.rsplit('_', 1)[-1]}"
    try:
        lifetime.up(fabric_file(tmp_path_factory.mktemp("lab"), name))
        yield record.plan(name, record.read(name))
    finally:
        remove(name)
