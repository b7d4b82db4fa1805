"""Debian's ib_write_bw, unmodified, between two hosts of the lab across SRv6, with the native library."""

from __future__ import annotations

import re
import subprocess
import time
from typing import Any

import pytest

from openmrc.lab import status
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import namespace
from tests.native.building import library

pytestmark = pytest.mark.needs("lab", "cc", "verbs.h", "jit", "ib_write_bw")
_SIZE, _WRITES = 65536, 100
_SERVER = "10.91.0.4"  # of h3 in the management network: perftest's own TCP connection


def ib_write_bw(lab: Lab, node: str, number: int, *more: str) -> subprocess.Popen[str]:
    """Start it on a host whose plain addresses end with `number`."""
    planes = ",".join((f"fd00::{number}", f"fd00:1::{number}"))
    settings = [f"LD_PRELOAD={library()}", f"MRC_PLANES={planes}"]
    program = ["ib_write_bw", "-s", str(_SIZE), "-n", str(_WRITES), *more]
    words: list[Any] = ["ip", "netns", "exec", namespace(lab.name, node), "env", *settings, *program]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def host_bytes(lab: Lab) -> list[int]:
    """Return the bytes that h0 has sent on each plane."""
    return [link.bytes for link in status.status(lab.name, with_sids=False).links if link.name.startswith("h0>")]


def test_ib_write_bw_writes_across_srv6_on_both_planes(lab: Lab) -> None:
    server = ib_write_bw(lab, "h3", 4)
    try:
        deadline = time.monotonic() + 30
        said = "Couldn't connect"
        while "Couldn't connect" in said and time.monotonic() < deadline:  # the server may not listen yet
            client = ib_write_bw(lab, "h0", 1, _SERVER)
            said = client.communicate(timeout=60)[0]
        assert client.returncode == 0, said
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
        server.wait()
    rows = [line.split() for line in said.splitlines() if re.match(r"^ ?\d+ +\d+ ", line)]
    assert rows[0][:2] == [str(_SIZE), str(_WRITES)]
    assert all(sent > _SIZE * _WRITES / 4 for sent in host_bytes(lab))
