"""What a listening command prints for the other side, run as printed on a host of another T0."""

from __future__ import annotations

import shlex
import subprocess

from harness.labs import start
from openmrc.fabric.addressing.paths import path
from openmrc.lab.layout import Lab
from tests.lab.test_live import MRC

HERE, THERE = "h3", "h0"
SAYS = "mrc: on the other side: "
OWN_TOKEN = ("env", "-u", "MRC_TOKEN")  # without that of the lab, so that the listener makes one and prints it


def printed(listener: subprocess.Popen[bytes]) -> list[str]:
    """Return the words of the command that a listener prints."""
    assert listener.stderr is not None
    for line in listener.stderr:
        if line.decode().startswith(SAYS):
            return shlex.split(line.decode().removeprefix(SAYS))
    raise AssertionError("nothing was printed for the other side")


def test_the_printed_command_reaches_the_listener_from_another_t0(lab: Lab) -> None:
    assert len(path(lab.plan, 0, 3, lab.ways(0, 0, 3)[0]).nodes) == 5  # two NICs, two T0s and the T1 between them
    with start(lab.name, HERE, [*OWN_TOKEN, *MRC, "perf"], stdout=-1, stderr=-1) as listener:
        try:
            program, *words = printed(listener)
            assert (program, HERE in words) == ("mrc", True)
            with start(lab.name, THERE, [*OWN_TOKEN, *MRC, *words, "-n", "20"], stdout=-1, stderr=-1) as peer:
                try:
                    said, complaint = peer.communicate(timeout=120)
                finally:
                    peer.kill()
            assert peer.returncode == 0, complaint.decode()
            assert listener.wait(60) == 0
        finally:
            listener.kill()
    assert b"BW average" in said
