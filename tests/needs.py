"""What tests need of the machine beyond Python: each says it with `@pytest.mark.needs(...)` or `require(...)`.

What is missing is skipped with a reason, and listed with a remedy at the end of the run.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Need:
    """Something of the machine, and how to get it."""

    is_met: Callable[[], bool]
    remedy: str


def program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def is_root() -> bool:
    return os.geteuid() == 0


@functools.cache
def has_lab() -> bool:
    """Whether this kernel can run a lab, all programs and rights included."""
    from openmrc.lab.doctor import examine

    return is_root() and all(each.met for each in examine().findings if each.needed)


def has_mptcp() -> bool:
    return os.path.exists("/proc/sys/net/mptcp/enabled")


def has_accelerator() -> bool:
    """Whether torch can use a device; torch is not imported where the kernel has none."""
    if not module("torch")() or not any(
        os.path.exists(f"/dev/{name}") for name in ("nvidiactl", "kfd", "dri", "accel", "dxg")
    ):
        return False
    import torch

    return torch.accelerator.is_available()


NEEDS = {
    "jit": Need(lambda: os.environ.get("NUMBA_DISABLE_JIT", "0") == "0", "unset NUMBA_DISABLE_JIT"),
    "root": Need(is_root, "run as root: the test makes network namespaces of its own"),
    "ip": Need(program("ip"), "apt install iproute2"),
    "lab": Need(has_lab, "run as root; `mrc doctor` says what this kernel lacks"),
    "mptcp": Need(has_mptcp, "a kernel with MPTCP"),
    "nft": Need(program("nft"), "apt install nftables"),
    "ethtool": Need(program("ethtool"), "apt install ethtool"),
    "iperf3": Need(program("iperf3"), "apt install iperf3"),
    "lldpd": Need(program("lldpd"), "apt install lldpd"),
    "tshark": Need(program("tshark"), "apt install tshark"),
    "vtysh": Need(program("vtysh"), "apt install frr"),
    "apt-get": Need(program("apt-get"), "a Debian: the test unpacks FRR of a newer suite"),
    "keyring": Need(
        lambda: os.path.exists("/usr/share/keyrings/debian-archive-keyring.gpg"), "apt install debian-archive-keyring"
    ),
    "sonic-yang": Need(
        lambda: module("sonic_yang")() and "SONIC_YANG_MODELS" in os.environ, "docs/exports.md, SONiC's own models"
    ),
    "netplan": Need(program("netplan"), "apt install netplan.io"),
    "make": Need(program("make"), "apt install make"),
    "herd7": Need(program("herd7"), "opam install herdtools7"),
    "clang": Need(program("clang"), "apt install clang llvm libbpf-dev"),
    "libbpf": Need(lambda: os.path.exists("/usr/include/bpf/bpf_helpers.h"), "apt install libbpf-dev"),
    "llvm-strip": Need(program("llvm-strip"), "apt install llvm"),
    "cc": Need(program(os.environ.get("CC", "cc")), "apt install gcc"),
    "dpkg-deb": Need(program("dpkg-deb"), "a Debian, or apt install dpkg"),
    "lintian": Need(program("lintian"), "apt install lintian"),
    "pkg-config": Need(program("pkg-config"), "apt install pkg-config"),
    "objdump": Need(program("objdump"), "apt install binutils"),
    "x86-64": Need(lambda: platform.machine() == "x86_64", "a machine with an x86-64 processor"),
    "verbs.h": Need(lambda: os.path.exists("/usr/include/infiniband/verbs.h"), "apt install libibverbs-dev"),
    "ibv_devinfo": Need(program("ibv_devinfo"), "apt install ibverbs-utils"),
    "ib_write_bw": Need(program("ib_write_bw"), "apt install perftest"),
    "pyverbs": Need(lambda: os.path.isdir("/usr/lib/python3/dist-packages/pyverbs"), "apt install python3-pyverbs"),
    "valgrind": Need(program("valgrind"), "apt install valgrind"),
    "torch": Need(module("torch"), "pip install '.[torch]'"),
    "accelerate": Need(module("accelerate"), "pip install accelerate"),
    "lightning": Need(module("lightning"), "pip install lightning"),
    "transformers": Need(module("transformers"), "pip install transformers accelerate"),
    "torchft": Need(module("torchft"), "pip install torchft"),
    "gpu": Need(has_accelerator, "a machine with a device that its torch was built for, such as a GPU with CUDA"),
    "sklearn": Need(module("sklearn"), "pip install '.[examples]'"),
    "prometheus": Need(program("prometheus"), "apt install prometheus"),
    "etcd": Need(program("etcd"), "apt install etcd-server"),
    "systemd-analyze": Need(program("systemd-analyze"), "apt install systemd"),
    "promtool": Need(program("promtool"), "apt install prometheus"),
    "chromium": Need(program("chromedriver"), "apt install chromium chromium-driver"),
    "expecttest": Need(module("expecttest"), "pip install expecttest: torch's own tests import it"),
}
EVERYWHERE = {"jit", "make"}  # met on every machine with Python and make: part of the fast tier
REASON = "this machine lacks "


def missing(*names: str) -> list[str]:
    """Return which of the needs this machine does not meet."""
    return [name for name in names if not NEEDS[name].is_met()]


def require(*names: str) -> None:
    """Skip the running test, all that share the running fixture, or the module, unless every need is met."""
    if lacking := missing(*names):
        pytest.skip(REASON + ", ".join(lacking), allow_module_level=True)
