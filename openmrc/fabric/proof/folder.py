"""Write a planned fabric to a folder.

plan.yaml             counts, blocks and ranges
tables.npz            all tables; `switches/NAME.txt` the same to read and edit
nics.tsv              name, host, and per plane the T0, its port and the NIC's address
templates/T0.yaml     for NICs under a T0 of plane 0: the address of each destination T0, choices marked x
profiles/A/B.MODE.yaml  EV format and profile from A to B, explicit and generated (fabrics of up to 64 NICs)
"""

from pathlib import Path
from typing import Any

import yaml

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.profiles import Mode, profile, template
from openmrc.fabric.addressing.sid_tables import build_tables
from openmrc.fabric.addressing.table_files import save, switch_text
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.proof.show import fabric_facts

MOST_PROFILED = 64  # NICs; each pair has two files
MOST_TEXT = 5000  # switches and templates written out
MODES: tuple[Mode, ...] = ("explicit", "generated")


def write(plan: UsidPlan, out: Path, text: bool = True) -> dict[str, Any]:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: is a file; expected a folder")
    topology = plan.topology
    out.mkdir(parents=True, exist_ok=True)
    tables = build_tables(plan)
    save(tables, out / "tables.npz")
    facts = fabric_facts(topology)
    (out / "plan.yaml").write_text(yaml.safe_dump(facts, sort_keys=False, width=120))
    _write_nics(plan, out / "nics.tsv")
    written = {"folder": str(out), "entries": len(tables), "switches": topology.nodes - topology.nics}
    if text and topology.nodes - topology.nics <= MOST_TEXT:
        written["templates"] = _write_templates(plan, out / "templates")
        folder = out / "switches"
        folder.mkdir(exist_ok=True)
        for switch in range(topology.nics, topology.nodes):
            (folder / f"{topology.name(switch)}.txt").write_text(switch_text(topology, tables, switch))
    written["profiles"] = _write_profiles(plan, out / "profiles") if text and topology.nics <= MOST_PROFILED else 0
    return {**written, "nics": topology.nics, "usid_depth": plan.depth}


def _write_nics(plan: UsidPlan, path: Path) -> None:
    topology = plan.topology
    header = ["nic", "host"]
    for sids in plan.planes:
        header += [f"p{sids.shape.plane}_t0", f"p{sids.shape.plane}_port", f"p{sids.shape.plane}_address"]
    with path.open("w", encoding="ascii") as file:
        file.write("\t".join(header) + "\n")
        for nic in range(topology.nics):
            row = [topology.name(nic), topology.host_name(nic // topology.nics_per_host)]
            for plane, sids in enumerate(plan.planes):
                t0 = topology.name(sids.shape.first_t0 + sids.shape.t0_of(nic))
                row += [t0, str(sids.shape.t0_port_of(nic)), plan.nic_address(plane, nic)]
            file.write("\t".join(row) + "\n")


def _write_templates(plan: UsidPlan, folder: Path) -> int:
    """One file a T0 of plane 0, one row a destination T0; the last uSID is that of its first port."""
    topology, shape = plan.topology, plan.topology.planes[0]
    if shape.t0_count > 256:
        return 0
    folder.mkdir(exist_ok=True)
    for here in range(shape.t0_count):
        source = shape.nic_at(here, 0)
        rows = []
        for there in range(shape.t0_count):
            ports = (nic for nic in (shape.nic_at(there, port) for port in (0, 1)) if nic not in (source, -1))
            destination = next(ports, -1)
            if destination >= 0:
                name = topology.name(shape.first_t0 + there)
                rows.append({"destination_t0": name, **template(plan, source, destination)})
        text = yaml.safe_dump(rows, sort_keys=False, width=120)
        (folder / f"{topology.name(shape.first_t0 + here)}.yaml").write_text(text)
    return shape.t0_count


def _write_profiles(plan: UsidPlan, folder: Path) -> int:
    """Write what `profile` can; a generated one that cannot be is left out, its reason in the explicit file."""
    topology, count = plan.topology, 0
    for source in range(topology.nics):
        own = folder / topology.name(source)
        own.mkdir(parents=True, exist_ok=True)
        for destination in range(topology.nics):
            if destination == source:
                continue
            for mode in MODES:
                try:
                    text = yaml.safe_dump(profile(plan, source, destination, mode), sort_keys=False, width=120)
                except ConfigError as error:
                    text = f"# none: {error}\n"
                (own / f"{topology.name(destination)}.{mode}.yaml").write_text(text)
                count += 1
    return count
