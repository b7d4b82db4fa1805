"""Endpoints with a controller socket in a folder of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.live_pair import SMALL, Pair, addresses, joined
from openmrc.ctl.client import CtlClient, local_endpoints
from openmrc.verbs import Context


@contextmanager
def opened(folder: Path, number: int, planes: int = 2) -> Iterator[tuple[Context, CtlClient]]:
    """Yield an endpoint and a client of it."""
    with Context(addresses(0, number, planes, 4), replace(SMALL, ctl=str(folder))) as context:
        (path,) = local_endpoints(str(folder))
        with CtlClient(path) as client:
            yield context, client


@contextmanager
def connected(folder: Path, planes: int = 2) -> Iterator[tuple[Pair, CtlClient]]:
    """Yield two connected endpoints, and a client of the first."""
    with joined(planes=planes, attr=replace(SMALL, ctl=str(folder), evs_per_plane=3)) as pair:
        found = local_endpoints(str(folder))
        mine = pair.contexts[0].control_socket
        assert mine in found
        with CtlClient(mine) as client:
            yield pair, client
