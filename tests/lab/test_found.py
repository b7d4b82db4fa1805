"""A lab of a fabric that was learned from somebody's configurations: the kernel forwards by their uSIDs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from openmrc.fabric.addressing.paths import path
from openmrc.fabric.model.build import build, save
from openmrc.fabric.proof.diff import read_running, tables_of
from openmrc.fabric.proof.verify import verify
from openmrc.fabric.readback.learn import learn
from openmrc.lab import lifetime, record
from openmrc.lab.layout import EXPORT
from openmrc.lab.namespaces import namespace
from openmrc.lab.switch_state import read_state
from tests.fabric.split_sonic import LEAVES, write_fabric
from tests.lab.sockets import mark, receive, udp

PORT = 4791


def test_every_path_of_a_learned_fabric_is_delivered_by_its_own_usids(lab_name: str, tmp_path: Path) -> None:
    write_fabric(tmp_path / "site")
    fabric = learn(tmp_path / "site", lab_name).fabric
    planes = tuple(msgspec.structs.replace(plane, host_gbps=0.1) for plane in fabric.planes)
    save(msgspec.structs.replace(fabric, planes=planes), tmp_path / "site.yaml", "learned")
    lifetime.up(tmp_path / "site.yaml")
    lab = record.plan(lab_name, record.read(lab_name))
    assert {port.interface for port in lab.ports() if port.node == "p1-leaf02"} == {
        "Ethernet0",
        "Ethernet4",
        "Ethernet36",
    }
    for plane in range(len(lab.plan.planes)):
        for source in range(LEAVES):
            destination = (source + 1) % LEAVES
            sender = udp(namespace(lab_name, f"h{source}"), lab.plan.nic_address(plane, source), 5000)
            receiver = udp(namespace(lab_name, f"h{destination}"), lab.plan.nic_address(plane, destination), PORT)
            with sender, receiver:
                mark(sender, 4)
                for way in lab.ways(plane, source, destination):
                    carrier = path(lab.plan, source, destination, way).address
                    assert carrier.startswith(f"fc00:{plane}:2{source}:1")
                    sender.sendto(carrier.encode(), (carrier, PORT))
                    assert receive(receiver).payload == carrier.encode()
    found = list(
        read_running(lab.plan, "linux", lambda switch: read_state(switch, namespace(lab_name, switch.name)), EXPORT)
    )
    assert all(each.difference.clean for each in found)
    assert verify(lab.plan, tables_of(lab.topology, found)).proven
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    for switch in lab.switches():
        for what, words in (
            ("routes", ("-6", "-j", "route", "show", "table", "main")),
            ("address", ("-j", "-d", "addr")),
        ):
            run = ["ip", "-n", namespace(lab_name, switch), *words]
            shown = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stdout
            (dumps / f"{switch}.{what}.json").write_text(shown)
    again = build(learn(dumps, lab_name).fabric)
    assert again.names == lab.topology.names
    assert (again.link_source == lab.topology.link_source).all()
    ends = zip(again.link_source.tolist(), again.link_port.tolist(), strict=True)
    assert all(again.port_name(*end) == lab.topology.port_name(*end) for end in ends)
