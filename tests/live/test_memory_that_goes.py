"""Registered memory that goes: a file that is cut off, what a program may and may not do with a buffer."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from harness.live_pair import joined
from openmrc.verbs import BusyError, QpState, WcStatus

LENGTH = 1 << 16


class FileMemory:
    """Memory of a file, which is gone when the file is cut off."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        os.ftruncate(self.file.fileno(), LENGTH)
        self.memory = mmap.mmap(self.file.fileno(), LENGTH)

    def cut_off(self) -> None:
        os.ftruncate(self.file.fileno(), 0)


@pytest.mark.needs("jit")
@pytest.mark.parametrize("length", [8, 4096, LENGTH])
def test_a_target_that_is_gone_is_an_error_and_the_process_lives(length: int) -> None:
    with joined() as pair:
        fragile = FileMemory()
        region = pair.regions[1].pd.reg_mr(fragile.memory)
        pair.ends[1].qp.post_recv(1)
        fragile.cut_off()
        pair.ends[0].qp.post_write(pair.regions[0][:length], region.addr, region.r_key, immediate=1)
        assert pair.ends[0].send_cq.wait(20)[0].status == WcStatus.REM_OP_ERR
        assert pair.ends[1].recv_cq.wait(20)[0].status == WcStatus.WR_FLUSH_ERR
        assert pair.ends[1].qp.state == QpState.ERROR


@pytest.mark.needs("jit")
@pytest.mark.parametrize("length", [8, 4096, LENGTH])
def test_a_source_that_is_gone_is_an_error_and_nothing_is_sent(length: int) -> None:
    with joined() as pair:
        fragile = FileMemory()
        region = pair.regions[0].pd.reg_mr(fragile.memory)
        fragile.cut_off()
        pair.regions[1].bytes[:] = 7
        pair.ends[0].qp.post_write(region[:length], pair.regions[1].addr, pair.regions[1].r_key)
        assert pair.ends[0].send_cq.wait(20)[0].status == WcStatus.LOC_PROT_ERR
        assert (pair.regions[1].bytes == 7).all()


def test_registered_memory_can_neither_be_resized_nor_freed() -> None:
    with joined() as pair:
        growing, array = bytearray(b"x" * 64), np.full(64, 9, np.uint8)
        regions = [pair.regions[0].pd.reg_mr(each) for each in (growing, array)]
        with pytest.raises(BufferError):
            growing.extend(b"more")
        del array
        gc.collect()
        pair.ends[0].qp.post_write(regions[1], pair.regions[1].addr, pair.regions[1].r_key)
        assert pair.ends[0].send_cq.wait(20)[0].status == WcStatus.SUCCESS
        assert bytes(pair.regions[1].bytes[:64]) == b"\x09" * 64


def test_memory_that_an_open_write_reads_cannot_be_deregistered() -> None:
    with joined() as pair:
        pair.contexts[1].close()
        pair.ends[0].qp.post_write(pair.regions[0], 1, 1)
        with pytest.raises(BusyError):
            pair.regions[0].dereg()
        pair.ends[0].qp.modify(state=QpState.ERROR)
        assert pair.ends[0].send_cq.wait(20)[0].status == WcStatus.WR_FLUSH_ERR
        pair.regions[0].dereg()


@pytest.mark.needs("jit")
def test_other_faults_end_the_process_as_they_did() -> None:
    program = "import ctypes; from openmrc.verbs import Context; c = Context(['127.0.0.1:21777']); ctypes.string_at(8)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False)
    assert done.returncode == -11
