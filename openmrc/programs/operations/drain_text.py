"""The proof of a drain as text: one sentence with PROVEN or REFUSED, what it stands on, what a step costs meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from openmrc.operations.control.drain_proof import DrainProof
from openmrc.programs.columns import counted, name_columns, row_columns

_MOST_NAMED = 4  # parts in a sentence


def proof_lines(proof: DrainProof) -> list[str]:
    """Say whether the parts may be taken out of use, and what every pair of NICs keeps then."""
    facts = [
        ("pairs that lose paths", f"{proof.pairs_reduced:,} of {proof.pairs:,}"),
        ("planes of the worst NIC", f"{proof.planes_left}"),
    ]
    return [proof_sentence(proof), "", *name_columns(facts)]


def proof_sentence(proof: DrainProof) -> str:
    """Say in one sentence whether the parts may be taken out of use."""
    cables = counted(proof.cables, "cable", "cables")
    out = (
        f"without {parts_text(proof.what)} ({cables})" if proof.what else f"with all that is not faulty ({cables} out)"
    )
    if not proof.allowed:
        return f"REFUSED {out}: {proof.why}."
    worst = " to ".join(proof.worst_pair)
    return f"PROVEN {out}: every pair of NICs keeps paths; the worst, {worst}, keeps {proof.worst_share:.1%}."


def parts_text(parts: Sequence[str]) -> str:
    """Return the names of some parts; of many the first and their number."""
    if len(parts) <= _MOST_NAMED:
        return ", ".join(parts)
    return f"{', '.join(parts[:_MOST_NAMED])} and {len(parts) - _MOST_NAMED:,} more"


def cost_lines(found: dict[str, Any], minutes: float) -> Iterator[str]:
    """Yield what a step of training costs while that lasts; `found` is the drain's answer as `--json` prints it."""
    if "step_unknown" in found:
        yield from ("", f"what a step of training costs meanwhile is not known: {found['step_unknown']}")
    if "step" in found:
        yield from (
            "",
            f"a step of training meanwhile, at most, by what failures cost; {minutes:g} minutes:",
            *_step_rows(found["step"]),
        )
    if "simulated" in found:
        yield from ("", "the same by packets on this fabric:", *_step_rows(found["simulated"]["step"]))


def _step_rows(steps: list[dict[str, Any]]) -> list[str]:
    rows = [("model", "step longer", "job loses", "collectives take")]
    for each in steps:
        slow = ", ".join(f"{name} {ratio:.3f}" for name, ratio in each["collectives"].items())
        rows.append((each["model"], f"{each['step_percent']:.2f} %", f"{each['lost_s']:,.1f} s", slow))
    return row_columns(rows)


def plan_lines(told: dict[str, Any], waves: Sequence[tuple[tuple[str, ...], DrainProof]], most: int) -> Iterator[str]:
    """Yield a rolling plan: how long it takes, and its first waves."""
    verdict = "PROVEN" if told["allowed"] else "REFUSED"
    yield f"{verdict}: {counted(len(waves), 'wave', 'waves')}, {told['minutes']:g} minutes, each T1 out once."
    yield from cost_lines(told, told["minutes"])
    yield ""
    rows = [("wave", "switches", "worst pair keeps", "which")]
    for number, (switches, proof) in enumerate(waves[:most], 1):
        rows.append((f"{number}", f"{len(switches):,}", f"{proof.worst_share:.1%}", parts_text(switches)))
    yield from row_columns(rows)
    if len(waves) > most:
        yield f"  and {len(waves) - most:,} more; --json has all"
