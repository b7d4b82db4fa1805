"""A folder of dumps or configurations, one or more files a switch: `SWITCH.ENDING`, as the export names them.

What a running system shows may have any ending: `ip -6 -j route`, FRR's JSON of routes and SIDs, and what
`kernel_state` reads.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from openmrc.base.documents import MOST_DUMP_BYTES, read_text
from openmrc.errors import ConfigError
from openmrc.fabric.export.targets import TARGETS
from openmrc.fabric.export.view import SwitchView
from openmrc.fabric.model.topology import Topology
from openmrc.fabric.readback import kernel_state, sonic
from openmrc.fabric.readback.dump import ROUTES, Sections
from openmrc.fabric.readback.formats import format_of, is_running, read_running

_ENDINGS = {"config_db.json": "json", "frr.conf": "conf", "startup-config": "eos", "running-config": "eos"}
_TELLING = {"nvue": "cumulus", "eos": "eos", "conf": "frr", "batch": "linux", "links": "linux"}


@dataclass(frozen=True)
class SwitchReading:
    """The content of one switch's files, with the plan."""

    planned: Sections
    configured: Sections
    running: Sections
    absent: list[str] = field(default_factory=list)  # files that other switches have but this one lacks
    unread: list[str] = field(default_factory=list)  # endings that the export has not and that show no running system


def files_of(path: Path) -> dict[str, dict[str, Path]]:
    """Return the files of a folder by device and ending: `DEVICE.ENDING`, or `DEVICE/FILE` as systems call them."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for entry in sorted(path.iterdir()):
        if entry.is_dir() and not entry.name.startswith("."):
            for file in sorted(entry.iterdir()):
                if file.is_file():
                    found[entry.name][_ENDINGS.get(file.name, file.name)] = file
        stem, _, ending = entry.name.partition(".")
        if entry.is_file() and stem and ending:
            found[stem][ending] = entry
    return found


class Folder:
    """Find the files of each switch."""

    def __init__(self, path: Path, topology: Topology, target: str | None = None) -> None:
        if not path.is_dir():
            raise ConfigError(f"{path}: not a folder of dumps, one or more files SWITCH.ENDING each")
        self.path = path
        self.files = files_of(path)
        self.names = {topology.name(node) for node in range(topology.nics, topology.nodes)}
        if not self.names & self.files.keys():
            raise ConfigError(
                f"{path}: no file of a switch of this fabric; expected such as {topology.name(topology.nics)}.json"
            )
        self.target = target or self._target_of_files()
        self.endings = {ending for name in self.names & self.files.keys() for ending in self.files[name]}

    @property
    def strangers(self) -> list[str]:
        """Return files that look like a switch's, but match no switch of this fabric."""
        return sorted(stem for stem in self.files if stem not in self.names and stem[:1] == "p" and "-t" in stem)

    def _target_of_files(self) -> str:
        name = min(self.names & self.files.keys())
        texts = [read_text(path, MOST_DUMP_BYTES) for path in self.files[name].values()]
        if any('"DEVICE_METADATA"' in text for text in texts):
            return "sonic"  # perhaps with the configuration of its FRR
        for ending, target in _TELLING.items():
            if ending in self.files[name]:
                return target
        running = [text.lstrip() for text in texts if is_running(text)]
        if not running:
            return "sonic"
        is_frr = any(text.startswith("{") and '"nftables"' not in text[:4096] for text in running)
        return "frr" if is_frr else "linux"

    def read(self, switch: SwitchView) -> SwitchReading:
        """Read the files of a switch, with the plan for each."""
        emitted = TARGETS[self.target].emit(switch)
        reading = SwitchReading({}, {}, {})
        own = self.files.get(switch.name, {})
        for ending, path in own.items():
            text = read_text(path, MOST_DUMP_BYTES)
            if self.target == "sonic" and ending == "conf":
                _merge(reading.configured, sonic.of_frr(switch, text))
                continue
            if ending not in emitted or is_running(text):
                if is_running(text):
                    _merge(reading.running, read_running(self.target, text, str(path)))
                else:
                    reading.unread.append(ending)
                continue
            read = format_of(self.target).readers[ending]
            found = read(text, str(path))
            _merge(reading.configured, found)
            _merge(reading.planned, found if text == emitted[ending] else read(emitted[ending], "plan"))
        if ROUTES in reading.running and "sysctl" in reading.configured:  # shown by the running system, too
            reading.running[kernel_state.SETTINGS] = reading.configured.pop("sysctl")
            reading.planned.pop("sysctl")
        expected = self.endings & emitted.keys()
        reading.absent.extend(f"file {switch.name}.{ending}" for ending in sorted(expected - own.keys()))
        if not (reading.configured or reading.running or reading.absent):
            reading.absent.append("any file")
        return reading


def _merge(into: Sections, more: Sections) -> None:
    for section, items in more.items():
        into[section] = {**into[section], **items} if section in into else items
