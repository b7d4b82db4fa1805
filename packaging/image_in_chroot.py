"""Run the steps of packaging/Containerfile where there is no builder: in directories that debootstrap fills, as root.

    python packaging/image_in_chroot.py FOLDER [COMMAND ...]

FOLDER/0 becomes the stage that builds, FOLDER/1 the image; the command, else `ibv_devinfo`, runs in it as its user.
Debian's own Python stands for that of the base image. Sources are those of the last commit.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASE = "python3,python3-venv,ca-certificates"


def run(root: Path, command: str, user: str, environment: dict[str, str]) -> None:
    """Run a command of the shell in a stage, with its own /proc, /dev and addresses of name servers."""
    settings = {
        "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        **environment,
    }
    mounts = f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && "
    inside = f"exec {shutil.which('chroot')} --userspec={user} {root} /bin/sh -c {shlex.quote(command)}"
    subprocess.run(["unshare", "--mount", "sh", "-c", mounts + inside], env=settings, check=True)


def begin(root: Path) -> None:
    """Make a stage with what the base image has."""
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={BASE}", "bookworm", root], check=True)
    for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists(name):
            shutil.copy(name, f"{root}{name}")


def copy(root: Path, source: str, target: str) -> None:
    """Copy the checkout, or what another stage made, into a stage."""
    made = Path(f"{root}{target}")
    if source == ".":
        made.mkdir()
        archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True).stdout
        subprocess.run(["tar", "x", "-C", made], input=archive, check=True)
    else:
        subprocess.run(["cp", "-a", source, made], check=True)


def main() -> None:
    """Do what the recipe says, line by line."""
    folder, given = Path(sys.argv[1]).absolute(), shlex.join(sys.argv[2:])
    stages, user, environment = 0, "root", {}
    for line in (ROOT / "packaging" / "Containerfile").read_text("utf-8").splitlines():
        word, _, rest = line.partition(" ")
        root = folder / str(max(stages - 1, 0))
        if word == "FROM":
            begin(folder / str(stages))
            stages += 1
        elif word == "RUN":
            sys.stdout.write(f"+ {rest}\n")
            sys.stdout.flush()
            run(root, rest, user, environment)
        elif word == "COPY":
            *_, source, target = rest.split()
            copy(root, f"{folder}/0{source}" if rest.startswith("--from=") else source, target)
        elif word == "ENV":
            environment.update([rest.split("=", 1)])
        elif word == "USER":
            user = rest
    run(folder / str(stages - 1), f"mrc run {given or 'ibv_devinfo'}", user, environment)


if __name__ == "__main__":
    main()
