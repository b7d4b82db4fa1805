"""Open the five doors in a bare directory that debootstrap filled, with the lines of docs/index.md, and time each.

    python packaging/doors_in_chroot.py ROOT [DOOR ...]    as root; DOOR: words that the first cell of a row has

Sources are those of the last commit. Prints each line with the seconds that it took, then a line for each door. A
folder /wheels in ROOT is where pip looks first, for wheels that no index has.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from image_in_chroot import ROOT, copy, run

PAGE = ROOT / "docs" / "index.md"
SECTION = re.compile(r"^## From a bare machine$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| ([^|`]+) \| (`[^|]+`) \|", re.MULTILINE)
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "PIP_CERT": "/etc/ca.crt", "PIP_FIND_LINKS": "/wheels"}


def doors() -> dict[str, list[str]]:
    """Return the lines of each row of the page, in order."""
    section = SECTION.search(PAGE.read_text("utf-8"))
    assert section is not None
    return {name: re.findall(r"`([^`]+)`", lines) for name, lines in ROW.findall(section[1])}


def prepare(root: Path) -> None:
    """Bring the sources, the addresses of name servers, and whom this machine trusts: it may have a proxy."""
    shutil.copy("/etc/resolv.conf", root / "etc")
    shutil.copy(TRUSTED, root / "etc" / "ca.crt")
    (root / "wheels").mkdir(exist_ok=True)
    if not (root / "openmrc").exists():
        copy(root, ".", "/openmrc")


def main() -> None:
    """Open the doors named on the command line, else all."""
    root, chosen = Path(sys.argv[1]).absolute(), sys.argv[2:]
    prepare(root)
    for name, lines in doors().items():
        if chosen and not any(word in name for word in chosen):
            continue
        begun = time.monotonic()
        failed = ""
        for line in lines:
            at = time.monotonic()
            active = "[ ! -e .venv/bin/activate ] || . .venv/bin/activate; "
            try:
                run(root, f"cd /openmrc; {active}{line}", "root", ENVIRONMENT)
            except subprocess.CalledProcessError as error:
                failed = f": failed, {error.returncode}"
            sys.stdout.write(f"+ {line}: {time.monotonic() - at:.0f} s\n")
        sys.stdout.write(f"door: {name}: {time.monotonic() - begun:.0f} s{failed}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
