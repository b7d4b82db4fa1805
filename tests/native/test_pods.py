"""The Kubernetes manifest: its commands run as its user between two network namespaces that know each other by name."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.native.building import ROOT, library

MANIFEST = ROOT / "packaging" / "kubernetes" / "write-bw.yaml"
NAMES = [f"mrck{os.getpid()}-{each}" for each in ("server", "client")]
ADDRESSES = ["10.78.0.1", "10.78.0.2"]
pytestmark = pytest.mark.needs("root", "ip", "cc", "verbs.h", "ib_write_bw", "jit")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def pods() -> Iterator[Path]:
    """Two namespaces with /etc/hosts of their own, as pods have; yield a library that everybody can read."""
    folder = Path(tempfile.mkdtemp(prefix="mrc-pods-"))
    folder.chmod(0o755)
    shutil.copy(library(), folder / "libmrc.so.1")
    settings = [Path("/etc/netns") / name for name in NAMES]
    try:
        for name, address, own in zip(NAMES, ADDRESSES, settings, strict=True):
            own.mkdir(parents=True)
            (own / "hosts").write_text(
                f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n{ADDRESSES[0]} write-bw\n"
            )
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", "eth0", "netns", NAMES[0], "type", "veth", "peer", "name", "eth0", "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield folder / "libmrc.so.1"
    finally:
        for name, own in zip(NAMES, settings, strict=True):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)
            shutil.rmtree(own, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]
    return spec["template"]["spec"] if document["kind"] == "Job" else spec


def command_in(name: str, pod: dict[str, Any], lib: Path) -> list[str]:
    """The container's command, in a namespace, with the user and without the capabilities that the pod has not."""
    user, (container,) = str(pod["securityContext"]["runAsUser"]), pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    dropped = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    changed = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *dropped]
    return ["ip", "netns", "exec", name, *changed, "env", f"LD_PRELOAD={lib}", *container["command"]]


def test_the_pods_of_the_manifest_reach_each_other(pods: Path) -> None:
    documents = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text("utf-8"))}
    server = subprocess.Popen(
        command_in(NAMES[0], pod_of(documents["Pod"]), pods), stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(1 + documents["Job"]["spec"]["backoffLimit"] * 5):  # a cluster waits longer between two tries
            command = command_in(NAMES[1], pod_of(documents["Job"]), pods)
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stdout + done.stderr
        figures = re.search(r"^ *65536 +\d+ +[\d.]+ +([\d.]+)", done.stdout, re.MULTILINE)
        assert figures is not None, done.stdout
        assert float(figures[1]) > 0
    finally:
        os.killpg(server.pid, 9)
        server.wait()
