"""Runs a piece of a test in a network namespace of its own, with interfaces that it may pull."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest


def available() -> bool:
    """Whether this user may make network namespaces with veth interfaces."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    probe = ["unshare", "--net", "ip", "link", "add", "va", "type", "veth", "peer", "name", "vx"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def run(script: str, *lines: str) -> None:
    """Make a namespace, run `ip` with each of `lines`, then the script; fail with what it printed."""
    setup = "import subprocess\ndef ip(line):\n    subprocess.run(['ip', *line.split()], check=True)\n"
    setup += "".join(f"ip({line!r})\n" for line in ("link set lo up", *lines))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", setup + script],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


needs_namespaces = pytest.mark.skipif(not available(), reason="needs root, unshare (util-linux) and ip (iproute2)")
