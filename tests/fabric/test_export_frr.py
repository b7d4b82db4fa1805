"""FRR itself, of three Debian suites: it installs the exported file, traffic flows, and `diff` reads it back."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.options import ExportOptions, FrrVersion
from openmrc.fabric.export.targets import export
from openmrc.fabric.proof.diff import compare
from tests.fabric.export_lab import containers, delivered, load, namespaces, run, tiny
from tests.fabric.frr_tree import frr_tree

pytestmark = pytest.mark.needs("root", "ip", "apt-get", "keyring")
DAEMONS = ("mgmtd", "zebra", "staticd")


class Router:
    """FRR of a tree in one namespace."""

    def __init__(self, root: Path, mark: str, name: str) -> None:
        self.root, self.namespace, self.space = root, mark + name, f"{mark}{name}"
        self._prefix = ["ip", "netns", "exec", self.namespace, "chroot", str(root)]
        self.run_folder = root / "run" / "frr" / self.space

    def start(self, configuration: str) -> None:
        """Start the daemons and load the file, as a boot does."""
        folder = self.root / "etc" / "frr" / self.space
        for each in (folder, self.run_folder, self.root / "var" / "lib" / "frr" / self.space):
            each.mkdir(parents=True, exist_ok=True)
            shutil.chown(each, 990, 990)
        (folder / "frr.conf").write_text(configuration)
        (folder / "vtysh.conf").write_text("service integrated-vtysh-config\n")
        for daemon in filter(self._has, DAEMONS):
            words = [
                f"/usr/lib/frr/{daemon}",
                "-d",
                "-N",
                self.space,
                "--log",
                f"file:/run/frr/{self.space}/{daemon}.log",
            ]
            # A daemon keeps the output it inherits, and whoever reads it would wait for its end.
            subprocess.run(
                [*self._prefix, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=True
            )
        said = self._inside("/usr/bin/vtysh", "-N", self.space, "-f", f"/etc/frr/{self.space}/frr.conf")
        assert "Unknown command" not in said, said

    def show(self, what: str) -> str:
        return self._inside("/usr/bin/vtysh", "-N", self.space, "-c", f"show {what}")

    def stop(self) -> None:
        for file in self.run_folder.glob("*.pid"):
            subprocess.run(["kill", file.read_text().strip()], check=False, capture_output=True, timeout=10)
        for folder in (
            self.run_folder,
            self.root / "etc" / "frr" / self.space,
            self.root / "var" / "lib" / "frr" / self.space,
        ):
            shutil.rmtree(folder, ignore_errors=True)

    def _has(self, daemon: str) -> bool:
        return (self.root / "usr" / "lib" / "frr" / daemon).is_file()  # 8.4 has no mgmtd

    def _inside(self, *words: str) -> str:
        done = subprocess.run([*self._prefix, *words], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr if words[-2] == "-f" else done.stdout


@contextmanager
def mounted(root: Path) -> Iterator[None]:
    """Give a tree /dev and /proc."""
    (root / "run" / "frr").mkdir(parents=True, exist_ok=True)
    shutil.chown(root / "run" / "frr", 990, 990)
    with ExitStack() as stack:
        for words, folder in ((["--bind", "/dev"], root / "dev"), (["-t", "proc", "proc"], root / "proc")):
            run("mount", *words, str(folder))
            stack.callback(subprocess.run, ["umount", str(folder)], check=False, timeout=60)
        yield


@contextmanager
def routers(
    plan: UsidPlan, suite: str, version: FrrVersion, in_containers: bool = False
) -> Iterator[tuple[str, dict[int, Router], ExportOptions]]:
    """Bring the fabric up: FRR on every switch, the NICs as in the containerlab export, perhaps the switches, too."""
    root, options = frr_tree(suite), ExportOptions(frr=version)
    topology, nics = plan.topology, containers(plan, options)
    files = nics if in_containers else dict(export(plan, "frr", options))
    found: dict[int, Router] = {}
    with mounted(root), namespaces(plan, *(("eth", 1) if in_containers else ("p", 0))) as mark:
        try:
            for nic in range(topology.nics):
                load(topology.name(nic), nics, mark)
            for switch in range(topology.nics, topology.nodes):
                name = topology.name(switch)
                load(name, files, mark)
                found[switch] = Router(root, mark, name)
                found[switch].start(files[f"{name}.conf"])
            yield mark, found, options
        finally:
            for router in found.values():
                router.stop()
            time.sleep(0.5)


@pytest.mark.parametrize(
    ("suite", "version", "extra"),
    [
        ("bookworm", "8.4", ""),
        ("trixie", "10.3", ""),
        ("sid", "10.7", ""),
        ("sid", "10.7", "usid: {downlink: ua}"),
        ("trixie", "10.3", "usid: {downlink: ua}"),
    ],
)
def test_frr_takes_the_file_traffic_flows_and_its_json_reads_back(suite: str, version: FrrVersion, extra: str) -> None:
    plan = tiny(extra)
    with routers(plan, suite, version) as (mark, found, options):
        _until_installed(plan, found, options)
        assert delivered(plan, mark, 0, 1)
        assert delivered(plan, mark, 0, 3)
        for switch, router in found.items():
            if version == "10.7":
                sids = compare(plan, switch, "frr", router.show("segment-routing srv6 sid json"), "sids", options)
                assert sids.clean, sids
                assert sids.planned > 0
            running = compare(
                plan, switch, "frr", router.show("running-config").replace("no ip forwarding", ""), "run", options
            )
            assert [line for line in running.missing if "hostname" not in line] == []
            assert [pair for pair in running.wrong if "hostname" not in pair["planned"]] == []
            kernel = run("ip", "-n", router.namespace, "-6", "-j", "route", "show")
            if "ua" not in extra:
                assert compare(plan, switch, "linux", kernel, "kernel", options).clean


@pytest.mark.parametrize(("suite", "version"), [("trixie", "10.3"), ("sid", "10.7")])
def test_frr_forwards_by_the_files_of_containers(suite: str, version: FrrVersion) -> None:
    plan = tiny()
    with routers(plan, suite, version, in_containers=True) as (mark, _, _):
        given_up = time.monotonic() + 120
        while not (delivered(plan, mark, 0, 1, 10) and delivered(plan, mark, 0, 3, 10)):
            assert time.monotonic() < given_up


def _until_installed(plan: UsidPlan, found: dict[int, Router], options: ExportOptions) -> None:
    """Wait until `show ipv6 route json` of every switch has no difference; say what is left after 20 s."""
    given_up = time.monotonic() + 20
    for switch, router in found.items():
        while True:
            difference = compare(plan, switch, "frr", router.show("ipv6 route json"), "routes", options)
            if difference.clean:
                break
            assert time.monotonic() < given_up, difference
            time.sleep(0.2)


def test_a_neighbour_that_is_not_there_is_told_from_frr_s_json() -> None:
    plan = tiny()
    with routers(plan, "sid", "10.7") as (mark, found, options):
        _until_installed(plan, found, options)
        switch = plan.topology.nics
        name = plan.topology.name(switch)
        run("ip", "-n", mark + name, "link", "set", "p2", "down")
        time.sleep(1)
        difference = compare(plan, switch, "frr", found[switch].show("ipv6 route json"), "routes", options)
        assert len(difference.missing) + len(difference.wrong) == 1
        assert not difference.clean
