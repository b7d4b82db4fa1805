"""The units in packaging/systemd, against systemd; and their commands with their own files and the /proc of units."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.free_port import free_port
from openmrc.operations.fleets.agents.certificates import CONTROLLER
from tests.operations.fleets.agents.test_port import FABRIC, line_with

FOLDER = Path(__file__).parents[2] / "packaging" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
MOST_EXPOSED = 20  # tenths, as systemd judges; 96 for a unit without a word


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units with this environment's `mrc`: systemd-analyze looks whether the program is there."""
    folder = tmp_path_factory.mktemp("units")
    for unit in UNITS:
        (folder / unit.name).write_text(unit.read_text().replace("/usr/bin/mrc", f"{Path(sys.executable).parent}/mrc"))
    return folder


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", [unit.name for unit in UNITS])
def test_systemd_takes_the_unit_and_finds_it_hardened(unit: str, installed: Path) -> None:
    command = ["systemd-analyze", "verify", "--man=no", str(installed / unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(installed / unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


class Host:
    """A folder that stands for the root of a host, as the units name its files."""

    def __init__(self, root: Path, certs: str) -> None:
        self.root = root
        # What systemd puts in place of its specifiers, and of the fixed folder.
        self.means = {
            "%d": certs,
            "%S": f"{root}/state",
            "%t": f"{root}/run",
            "%i": "root",
            "/etc/openmrc": f"{root}/etc",
        }

    def command(self, unit: str, environment: dict[str, str]) -> list[str]:
        lines = dict(line.split("=", 1) for line in (FOLDER / unit).read_text().splitlines() if line[:4] == "Exec")
        line = lines["ExecStart"]
        for word, text in self.means.items():
            line = line.replace(word, text)
        words: list[str] = []
        for word in shlex.split(line):  # ${X} is one word, $X as many as it has
            name = word.strip("${}")
            is_split = word == f"${name}"
            words += environment[name].split() if is_split else [environment.get(name, word) if "${" in word else word]
        return [sys.executable, "-m", "openmrc.programs.main", *words[1:]]

    @contextmanager
    def started(self, unit: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        """The command of a unit, with `ProcSubset=pid`; ends by SIGTERM with its exit status."""
        script = 'mount -t proc -o subset=pid,hidepid=invisible proc /proc && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *self.command(unit, environment)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            assert process.returncode == 143
        finally:
            process.kill()
            process.communicate()


@pytest.mark.needs("root")
def test_the_commands_of_the_units_work_together(tmp_path: Path) -> None:
    for folder in ("etc", "state/openmrc", "run/openmrc-root"):
        (tmp_path / folder).mkdir(parents=True, mode=0o700)
    (tmp_path / "etc" / "fabric.yaml").write_text(FABRIC)
    authority = pytest.importorskip("openmrc.operations.fleets.agents.authority")
    authority.make_certificates(tmp_path / "etc" / "certs", "twelve", [CONTROLLER, "h0"], 30)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    for line in (FOLDER / "openmrc-controller.service").read_text().splitlines():
        if line.startswith("LoadCredential="):
            name, path = line.partition("=")[2].split(":")
            shutil.copy(path.replace("/etc/openmrc", f"{tmp_path}/etc"), credentials / name)
    host = Host(tmp_path, str(credentials))
    where = f"127.0.0.1:{free_port()}"
    absent = " ".join(f"--absent h{nic}" for nic in range(1, 12))
    controller = {"LISTEN": where, "OPTIONS": f"--apply --no-probes {absent}"}
    agent = {"HOST": "h0", "OPTIONS": f"--controller {where} --no-probes"}
    port = free_port()
    with (
        host.started("openmrc-controller.service", controller),
        host.started("openmrc-agent@.service", agent) as speaks,
        host.started("openmrc-metrics@.service", {"LISTEN": str(port)}) as serves,
    ):
        line_with(speaks, f"connected to {where}")
        line_with(serves, str(port))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert answer.read().endswith(b"# EOF\n")
