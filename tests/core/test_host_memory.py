"""The memory that is left: of the machine, of control groups, and a refusal that says what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmrc.core import host_memory

GIB = 1 << 30


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A machine with 8 GiB available and 1 GiB of swap, whose process is in the control group job/rank."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {8 << 20} kB\nSwapFree: {1 << 20} kB\n")
    (tmp_path / "self" / "cgroup").write_text("0::/job/rank\n")
    (tmp_path / "groups" / "job" / "rank").mkdir(parents=True)
    return tmp_path


def limit(host: Path, group: str, most: str, used: int, of_files: int = 0) -> None:
    folder = host / "groups" / group
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {of_files}\n")


def left(host: Path) -> int:
    return host_memory.available_bytes(host, host / "groups")


def test_without_limits_it_is_what_the_machine_has_with_swap(host: Path) -> None:
    assert left(host) == 9 * GIB
    limit(host, "job/rank", "max", GIB)
    assert left(host) == 9 * GIB


def test_a_control_group_limits_it_and_unused_file_pages_count_as_free(host: Path) -> None:
    limit(host, "job/rank", str(4 * GIB), 3 * GIB, of_files=GIB)
    assert left(host) == 2 * GIB
    limit(host, "job", str(2 * GIB), GIB)
    assert left(host) == GIB
    limit(host, "job", str(GIB), 2 * GIB)
    assert left(host) == 0


def test_control_groups_of_version_1_are_read_as_well(host: Path) -> None:
    (host / "self" / "cgroup").write_text("5:cpu,cpuacct:/\n4:memory:/job\n0::/\n")
    group = host / "groups" / "memory" / "job"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(f"{5 * GIB}\n")
    (group / "memory.usage_in_bytes").write_text(f"{3 * GIB}\n")
    (group / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {GIB}\n")
    assert left(host) == 3 * GIB


def test_where_nothing_is_reported_nothing_is_refused(tmp_path: Path) -> None:
    assert host_memory.available_bytes(tmp_path, tmp_path) > 1 << 50


def test_this_machine_has_some() -> None:
    assert 1 << 20 < host_memory.available_bytes() < 1 << 50


def test_tables_beyond_it_are_refused_with_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 10**9)
    host_memory.require([np.zeros(10, np.int64)], "ten numbers")
    with pytest.raises(MemoryError, match=r"at least 1\.6 GB are needed for 200 M numbers, 1\.0 GB are available"):
        host_memory.require([np.zeros(2 * 10**8, np.int64)], "200 M numbers")
