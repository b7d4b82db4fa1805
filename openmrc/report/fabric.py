"""One page of a fabric to hand on: counts, planes, the proof, a table of each tier, cables and what to order."""

from collections.abc import Iterator
from html import escape

import numpy as np

from openmrc.fabric.addressing.sid_tables import switch_tables
from openmrc.fabric.addressing.table_files import entry_text
from openmrc.fabric.addressing.usid import UsidPlan, block_text
from openmrc.fabric.cables.listing import COPPER, Cables
from openmrc.fabric.cables.materials import COLUMNS, JOINED, Item
from openmrc.fabric.model.topology import LinkTier
from openmrc.fabric.proof.verify import Verdict
from openmrc.report.page import folded, page, rows, tile


def fabric_page(plan: UsidPlan, sentence: str, verdict: Verdict, cables: Cables, items: list[Item]) -> str:
    """Return the page; `sentence` says whether the tables are proven."""
    name = plan.topology.fabric.name
    mood = "good" if verdict.proven else "bad"
    body = [f"<h1>{escape(name)}</h1>", f'<p class="lead {mood}">{escape(sentence)}</p>', _tiles(plan, cables)]
    body += ["<h2>Planes</h2>", _planes(plan), "<h2>Proof</h2>", _proof(verdict)]
    body += ["<h2>Tables</h2>", *_tables(plan), "<h2>Cables</h2>", _cables(cables)]
    return page(f"{name}: fabric", [*body, "<h2>To order</h2>", _bill(items)])


def _tiles(plan: UsidPlan, cables: Cables) -> str:
    topology = plan.topology
    gbps = sum(each.host_gbps for each in topology.fabric.planes_one_by_one())
    shown = [
        ("NICs", f"{topology.nics:,}", f"{topology.nics // topology.nics_per_host:,} machines"),
        ("planes", f"{len(plan.planes)}", f"{gbps:g} Gb/s a NIC"),
        ("switches", f"{topology.nodes - topology.nics:,}", ""),
        ("cables", f"{len(cables):,}", f"{cables.length_mm.sum() / 1e6:,.1f} km"),
        ("racks", f"{len(cables.placement.racks):,}", ""),
    ]
    return f'<div class="tiles">{"".join(tile(*each) for each in shown)}</div>'


def _planes(plan: UsidPlan) -> str:
    head = ("plane", "block", "Gb/s", "T0", "T1", "T2", "paths of a far pair", "uSIDs")
    body = []
    for sids, described in zip(plan.planes, plan.topology.fabric.planes_one_by_one(), strict=True):
        shape = sids.shape
        ranges = ", ".join(f"{name} {first:04x}..{first + count - 1:04x}" for name, first, count in sids.ranges())
        counts = (*shape.counts, shape.paths)
        numbers = [f"{each:,}" for each in counts]
        body.append((f"{shape.plane}", block_text(sids.block), f"{described.host_gbps:g}", *numbers, ranges))
    return rows(head, body, range(2, 7))


def _proof(verdict: Verdict) -> str:
    facts = [
        ("ordered pairs of NICs", f"{verdict.pairs:,}"),
        ("paths", f"{verdict.paths:,}"),
        ("of them delivered as their EVs name them", f"{verdict.delivered:,}"),
        ("entries", f"{verdict.entries:,}"),
        ("entries of the largest table", f"{verdict.largest_table:,}"),
        ("uSIDs of the longest path", f"{verdict.depth}"),
    ]
    return rows(("", ""), facts, [1])


def _tables(plan: UsidPlan) -> Iterator[str]:
    """Yield the table of the first switch of each tier of each plane."""
    for sids in plan.planes:
        shape = sids.shape
        for node in shape.firsts[: shape.tiers]:
            table = switch_tables(plan, node)
            text = "\n".join(entry_text(table, row) for row in range(len(table)))
            yield folded(f"{plan.topology.name(node)}: {len(table)} entries", text)


def _cables(cables: Cables) -> str:
    """Count cables by what they join, kind and length."""
    tier = cables.topology.link_tier[cables.link]
    keys = np.stack([tier.astype(np.int64), (cables.medium == COPPER).astype(np.int64), cables.length_mm], axis=1)
    kinds, counts = np.unique(keys, axis=0, return_counts=True)
    body = [
        (JOINED[LinkTier(int(joined))], "copper" if copper else "fibre", f"{length / 1000:g}", f"{count:,}")
        for (joined, copper, length), count in zip(kinds.tolist(), counts.tolist(), strict=True)
    ]
    return rows(("between", "kind", "m", "cables"), body, (2, 3))


def _bill(items: list[Item]) -> str:
    head = [name.replace("length_m", "length, m").replace("_", " ") for name in COLUMNS]
    return rows(head, [[_grouped(cell) for cell in item.cells()] for item in items], range(3, len(COLUMNS)))


def _grouped(cell: str) -> str:
    return f"{int(cell):,}" if cell.isdigit() else cell
