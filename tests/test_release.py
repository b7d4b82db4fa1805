"""What a release consists of: digests of what it needs, and the folder that `make release` writes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import zlib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def pinned(path: Path) -> dict[str, str]:
    return {
        canonicalize_name(name): version for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)", path.read_text())
    }


def needed_at_run_time() -> set[str]:
    """The names of all distributions that the core install brings, as their metadata say."""
    found: set[str] = set()
    waiting = ["openmrc"]
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or ():
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found.add(name)
                waiting.append(name)
    return found


def test_all_that_is_needed_has_digests_of_the_version_that_is_tested() -> None:
    """Renew with packaging/hashes.sh."""
    locked = pinned(ROOT / "packaging" / "requirements.txt")
    assert set(locked) == needed_at_run_time()
    assert locked.items() <= pinned(ROOT / "constraints.txt").items()
    entries = re.split(r"(?m)^(?=[\w.-]+==)", (ROOT / "packaging" / "requirements.txt").read_text())[1:]
    assert len(entries) == len(locked)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


@pytest.mark.needs("jit")
def test_portable_code_becomes_an_object_file_of_another_machine() -> None:
    """What a wheel for AArch64 ships of an entry; the ELF header says for which machine the result is."""
    spec = importlib.util.spec_from_file_location("shipped_code", ROOT / "packaging" / "shipped_code.py")
    assert spec is not None
    assert spec.loader is not None
    shipped_code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shipped_code)
    llvm = shipped_code.llvm
    module = llvm.parse_assembly('target triple = "x86_64-unknown-linux-gnu"\ndefine i64 @f(i64 %a) { ret i64 %a }')
    kept = ("f", zlib.compress(module.as_bitcode()), "what else the cache keeps")
    name, compressed, rest = shipped_code.moved(kept, "aarch64-unknown-linux-gnu")
    assert (name, rest) == ("f", "what else the cache keeps")
    llvm.initialize_all_asmprinters()
    moved = llvm.parse_bitcode(zlib.decompress(compressed))
    code = llvm.Target.from_triple(moved.triple).create_target_machine().emit_object(moved)
    assert (code[:4], int.from_bytes(code[18:20], "little")) == (b"\x7fELF", 183)  # EM_AARCH64


@pytest.mark.exhaustive
def test_a_release_is_built_with_its_sums_and_its_bill_of_materials(tmp_path: Path) -> None:
    command = [str(ROOT / "packaging" / "release.sh"), str(tmp_path), "none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert {"openmrc-source.tar.gz", "openmrc.cdx.json", "requirements.txt", "SHA256SUMS"} <= names
    assert len(list(tmp_path.glob("openmrc-*-py3-none-any.whl"))) == 1
    subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    bill = json.loads((tmp_path / "openmrc.cdx.json").read_text())
    assert {each["name"]: each["version"] for each in bill["components"]} == pinned(tmp_path / "requirements.txt")
