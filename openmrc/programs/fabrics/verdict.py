"""Proofs as text: one sentence with PROVEN or NOT PROVEN, then what it stands on."""

from collections.abc import Iterator, Sequence
from typing import Any

from openmrc.base.terminal import counted, name_columns, row_columns
from openmrc.fabric.proof.verify import Verdict
from openmrc.operations.control.drain_proof import DrainProof

_MOST_SHOWN = 20  # rows of a table
_MOST_NAMED = 4  # parts in a sentence


def verdict_text(verdict: Verdict, wall_s: float, unread: Sequence[str] | None = None) -> str:
    """Say whether the tables are proven, and list what is wrong; `unread`: of what runs, None for a plan's tables."""
    facts = [
        ("ordered pairs of NICs", f"{verdict.pairs:,}"),
        ("paths, one an EV", f"{verdict.paths:,}"),
        ("entries", f"{verdict.entries:,}, at most {verdict.largest_table:,} in a switch"),
        ("uSIDs of the longest path", f"{verdict.depth}"),
        ("took", f"{wall_s:.2f} s"),
    ]
    return "\n".join(
        [verdict_sentence(verdict, unread), "", *name_columns(facts), *_broken(verdict), *_unexpected(verdict)]
    )


def verdict_sentence(verdict: Verdict, unread: Sequence[str] | None = None) -> str:
    """Say in one sentence what is proven, and what was not looked at."""
    if verdict.proven:
        delivered = f"very EV of all {verdict.pairs:,} ordered pairs of NICs is delivered on the path that it names."
        if unread is None:
            return f"PROVEN: e{delivered}"
        return f"tables PROVEN; not looked at: {', '.join([*unread, 'hosts'])}. E{delivered}"
    wrong = []
    if verdict.broken_count:
        lost = verdict.paths - verdict.delivered
        entries = counted(verdict.broken_count, "wrong entry", "wrong entries")
        wrong.append(f"{lost:,} of {verdict.paths:,} paths are not as planned, because of {entries}")
    if verdict.unexpected_count:
        wrong.append(f"{counted(verdict.unexpected_count, 'entry is', 'entries are')} used by no path")
    delivering = sum(bool(each.get("delivers")) for each in verdict.broken)
    if delivering:
        wrong.append(f"{counted(delivering, 'wrong entry delivers', 'wrong entries deliver')} all the same")
    return f"NOT PROVEN: {'; '.join(wrong)}."


def _broken(verdict: Verdict) -> Iterator[str]:
    if not verdict.broken:
        return
    head = ("switch", "entry", "planned", "found", "verdict", "paths", "pairs", "example")
    rows = [_row(each) for each in verdict.broken[:_MOST_SHOWN]]
    yield from ("", *row_columns([head, *rows]))
    if verdict.broken_count > _MOST_SHOWN:
        yield f"and {verdict.broken_count - _MOST_SHOWN:,} more; --json lists {len(verdict.broken)}"


def _row(broken: dict[str, Any]) -> tuple[str, ...]:
    seen = ""
    if example := broken.get("example"):
        seen = f"{example['source']} to {example['destination']}, EV {example['ev']}: {example['becomes']}"
    delivers = "differs, delivers" if broken.get("delivers") else "does not deliver"
    return (
        broken["switch"], broken["entry"], broken["expected"], broken["found"], delivers, f"{broken['paths']:,}",
        f"{broken['pairs']:,}", seen,
    )  # fmt: skip


def _unexpected(verdict: Verdict) -> Iterator[str]:
    if verdict.unexpected:
        yield "\nentries that no path uses:"
        yield from (f"  {each['switch']}  {each['entry']}" for each in verdict.unexpected[:_MOST_SHOWN])


def proof_lines(proof: DrainProof, refused: str = "REFUSED") -> list[str]:
    """Say whether the parts may be taken out of use, and what every pair of NICs keeps then."""
    facts = [
        ("pairs that lose paths", f"{proof.pairs_reduced:,} of {proof.pairs:,}"),
        ("planes of the worst NIC", f"{proof.planes_left}"),
    ]
    return [_sentence(proof, refused), "", *name_columns(facts)]


def _sentence(proof: DrainProof, refused: str) -> str:
    """Say in one sentence whether the parts may be taken out of use."""
    cables = counted(proof.cables, "cable", "cables")
    out = (
        f"without {parts_text(proof.what)} ({cables})" if proof.what else f"with all that is not faulty ({cables} out)"
    )
    if not proof.allowed:
        return f"{refused} {out}: {proof.why}."
    worst, kept = " to ".join(proof.worst_pair), f"{proof.fewest:,} of {proof.of:,} ({proof.worst_share:.1%})"
    return f"PROVEN {out}: every pair of NICs keeps paths; the worst, {worst}, keeps {kept}."


def parts_text(parts: Sequence[str]) -> str:
    """Return the names of some parts; of many the first and their number."""
    if len(parts) <= _MOST_NAMED:
        return ", ".join(parts)
    return f"{', '.join(parts[:_MOST_NAMED])} and {len(parts) - _MOST_NAMED:,} more"
