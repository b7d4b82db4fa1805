"""FRR of another Debian suite, unpacked beside ours: apt resolves and fetches, nothing is installed.

A tree is made once and kept in the cache folder; it needs root (chroot), apt and the archive's keyring.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PERMIT = "auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n"
_USERS = "root:x:0:0:root:/root:/bin/sh\nfrr:x:990:990::/nonexistent:/usr/sbin/nologin\n"
_GROUPS = "root:x:0:\nfrr:x:990:\nfrrvty:x:991:frr\n"


def frr_tree(suite: str) -> Path:
    """Return the root of the tree of a suite; skip the test where it cannot be had."""
    top = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "openmrc-frr" / suite
    if not (top / "root" / "usr" / "lib" / "frr" / "zebra").is_file():
        shutil.rmtree(top, ignore_errors=True)
        _fetch(suite, top)
        _furnish(top / "root")
    return top / "root"


def _fetch(suite: str, top: Path) -> None:
    for folder in ("state/lists/partial", "cache/archives/partial", "etc", "root"):
        (top / folder).mkdir(parents=True, exist_ok=True)
    (top / "status").touch()
    (top / "etc" / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_archive()} {suite} main\n")
    settings = (
        f"Dir::State={top}/state", f"Dir::State::status={top}/status", f"Dir::Cache={top}/cache",
        f"Dir::Etc::sourcelist={top}/etc/sources.list", "Dir::Etc::sourceparts=-", "APT::Sandbox::User=root",
        "Acquire::Languages=none",
    )  # fmt: skip
    apt = ["apt-get", "-qq", *(word for setting in settings for word in ("-o", setting))]
    for words in (["update"], ["install", "-y", "--download-only", "--no-install-recommends", "frr"]):
        done = subprocess.run([*apt, *words], capture_output=True, text=True, timeout=240, check=False)
        if done.returncode:
            shutil.rmtree(top, ignore_errors=True)
            pytest.skip(f"apt has no FRR of {suite}: {done.stderr.strip()[:200]}")
    for package in sorted((top / "cache" / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, top / "root"], check=True, timeout=60)
    shutil.rmtree(top / "cache")


def _archive() -> str:
    """Return where this machine's own Debian packages come from."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout.split()
    if not found:
        pytest.skip("apt knows no archive of Debian")
    return found[0]


def _furnish(root: Path) -> None:
    """Add what maintainer scripts would have: links of the merged /usr, users, and leave to use vtysh."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(exist_ok=True)
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for folder in ("dev", "proc", "run/frr", "var/lib/frr", "var/tmp/frr", "etc/frr", "tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / "var" / "run", ignore_errors=True)
    (root / "var" / "run").symlink_to("../run")
    (root / "etc" / "passwd").write_text(_USERS)
    (root / "etc" / "group").write_text(_GROUPS)
    for service in ("frr", "other"):
        (root / "etc" / "pam.d" / service).write_text(_PERMIT)
