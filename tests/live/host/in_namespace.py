"""Runs a piece of a test in a network namespace of its own, with interfaces that it may pull."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

SOFTWARE_LINKS = (  # none is on hardware; docker7 is a container's end of a pair once vz has been given away
    "link add d0 type ifb",
    "address add 10.1.0.1/24 dev d0",
    "link set d0 up",
    "link add podman0 type bridge",
    "address add 10.1.1.1/24 dev podman0",
    "link set podman0 up",
    "link add docker7 type veth peer name vz",
    "address add 10.1.3.1/24 dev docker7",
)
SETUP = """
import atexit, subprocess

def ip(line):
    subprocess.run(['ip', *line.split()], check=True)

def give_away(name):
    # To a namespace that lasts as long as this process, and up there.
    other = subprocess.Popen(['unshare', '--net', 'sh', '-c', 'echo ready; exec sleep 600'], stdout=subprocess.PIPE)
    atexit.register(other.kill)
    other.stdout.readline()
    ip(f'link set {name} netns {other.pid}')
    subprocess.run(['nsenter', '-t', str(other.pid), '-n', 'ip', 'link', 'set', name, 'up'], check=True)

"""


def available() -> bool:
    """Whether this user may make network namespaces with veth interfaces."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    probe = ["unshare", "--net", "ip", "link", "add", "va", "type", "veth", "peer", "name", "vx"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def run(script: str, *lines: str) -> None:
    """Make a namespace, run `ip` with each of `lines`, then the script; fail with what it printed."""
    setup = SETUP + "".join(f"ip({line!r})\n" for line in ("link set lo up", *lines))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", setup + script],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


needs_namespaces = pytest.mark.skipif(not available(), reason="needs root, unshare (util-linux) and ip (iproute2)")
