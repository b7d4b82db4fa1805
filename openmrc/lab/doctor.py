"""Check this machine for the needs of a lab: by trying them in a temporary namespace, without root by reading files."""

import gzip
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from openmrc.lab.port import OBJECT

_BOX = "mrc-doctor"


class CheckedNeed(msgspec.Struct, kw_only=True):
    """One need, and whether it is met."""

    name: str
    needed: bool  # False: optional
    met: bool | None  # None: unknown without root
    how: str  # evidence
    purpose: str
    remedy: str  # empty if the need is met


class DoctorReport(msgspec.Struct, kw_only=True):
    """All findings."""

    kernel: str
    root: bool
    ready: bool | None  # None: nothing is missing as far as known without root
    findings: list[CheckedNeed]


@dataclass(frozen=True)
class Need:
    name: str
    purpose: str
    provider: str  # options of the kernel's configuration, or of a program its package
    tries: tuple[str, ...] = ()  # commands for the temporary namespace; all must succeed
    needed: bool = True

    def checked(self, met: bool | None, how: str, remedy: str) -> CheckedNeed:
        """Return the finding; the remedy is for a need that is not met."""
        remedy = "" if met else remedy
        return CheckedNeed(name=self.name, needed=self.needed, met=met, how=how, purpose=self.purpose, remedy=remedy)


_USID = "encap seg6local action End flavors next-csid lblen 32 nflen 16"
NEEDS = (
    Need("veth", "cables", "CONFIG_VETH", ("ip link add x0 type veth peer name x1", "ip link set x0 up")),
    Need("bridge", "the management network", "CONFIG_BRIDGE", ("ip link add br0 type bridge",)),
    Need(
        "uSID (NEXT-C-SID)", "switches that shift uSIDs; kernel 6.1 and up", "CONFIG_IPV6_SEG6_LWTUNNEL",
        (f"ip -6 route add fcbb:bb00:1::/48 {_USID} dev x0",),
    ),
    Need(
        "SRv6 encapsulation", "TCP and MPTCP across the fabric", "CONFIG_IPV6_SEG6_LWTUNNEL",
        ("ip -6 route add fd00::1/128 encap seg6 mode encap.red segs fcbb:bb00:1:: dev x0",),
    ),
    Need("HTB", "rates and two classes of service", "CONFIG_NET_SCH_HTB", ("tc qdisc add dev x0 root htb",)),
    Need("clsact", "the hook for ECN marking and trimming", "CONFIG_NET_SCH_INGRESS", ("tc qdisc add dev x0 clsact",)),
    Need(
        "tc-BPF", "ECN marking, trimming and faults", "CONFIG_NET_CLS_BPF, CONFIG_BPF_SYSCALL",
        (f"tc filter add dev x0 egress bpf direct-action object-file {OBJECT} section tc",),
    ),
    Need("MPTCP", "comparison with MPTCP", "CONFIG_MPTCP", ("cat /proc/sys/net/mptcp/enabled",), needed=False),
)  # fmt: skip
PROGRAMS = (
    Need("ip", "namespaces, links and routes", "iproute2"),
    Need("tc", "rates and programs", "iproute2"),
    Need("ethtool", "tests without checksum offload", "ethtool", needed=False),
    Need("tshark", "reading captures", "tshark", needed=False),
    Need("iperf3", "a second TCP measurement", "iperf3", needed=False),
    Need("clang", "`make bpf`: only to change the port's program", "clang, libbpf-dev", needed=False),
)


def examine() -> DoctorReport:
    root = os.geteuid() == 0
    findings = [_program(each) for each in PROGRAMS]
    findings += list(_by_trying() if root and shutil.which("ip") and shutil.which("tc") else _by_reading())
    needs = [each.met for each in findings if each.needed]
    ready = False if False in needs else None if None in needs or not root else True
    return DoctorReport(kernel=platform.release(), root=root, ready=ready, findings=findings)


def _program(program: Need) -> CheckedNeed:
    where = shutil.which(program.name) or next(
        (f"{folder}/{program.name}" for folder in ("/usr/sbin", "/sbin") if Path(folder, program.name).exists()), None
    )
    how = where or "not found in PATH, /usr/sbin, /sbin"
    return program.checked(bool(where), how, f"install {program.provider}")


def _by_trying() -> Iterator[CheckedNeed]:
    box = f"{_BOX}-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", box], capture_output=True, check=False)
    try:
        for need in NEEDS:
            yield _finding(need, *_tried(box, need))
    finally:
        subprocess.run(["ip", "netns", "delete", box], capture_output=True, check=False)


def _tried(box: str, need: Need) -> tuple[bool, str]:
    for line in need.tries:
        command = ["ip", "netns", "exec", box, *line.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return False, f"`{line}`: {' '.join(done.stderr.split())[:200]}"
    return True, "tried in a temporary namespace"


def _by_reading() -> Iterator[CheckedNeed]:
    config = kernel_config()
    for need in NEEDS:
        options = need.provider.split(", ")
        if config is None:
            yield _finding(need, None, "no readable kernel configuration; run as root to test")
            continue
        source, answers = config
        missing = [option for option in options if answers.get(option, "n") == "n"]
        yield _finding(
            need, not missing, f"{source}: {', '.join(missing or options)} is {'not ' if missing else ''}set"
        )


def _finding(need: Need, met: bool | None, how: str) -> CheckedNeed:
    return need.checked(met, how, f"a kernel with {need.provider}; as a module it loads by itself or by modprobe")


def kernel_config() -> tuple[str, dict[str, str]] | None:
    """Return the location and content of the kernel's configuration; None if it is not available."""
    readers: tuple[tuple[str, Callable[[Path], str]], ...] = (
        ("/proc/config.gz", lambda path: gzip.decompress(path.read_bytes()).decode()),
        (f"/boot/config-{platform.release()}", lambda path: path.read_text("utf-8")),
        (f"/lib/modules/{platform.release()}/config", lambda path: path.read_text("utf-8")),
    )
    for name, read in readers:
        try:
            text = read(Path(name))
        except OSError:
            continue
        pairs = (line.split("=", 1) for line in text.splitlines() if line.startswith("CONFIG_") and "=" in line)
        return name, {option: value.strip('"') for option, value in pairs}
    return None
