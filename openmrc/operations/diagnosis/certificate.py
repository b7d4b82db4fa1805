"""What a probe plan can tell apart, proven for the plan at hand.

Single faults: two parts are told apart if some probe crosses one and not the other. The set of probes over a part is
condensed to the sum of random 64-bit numbers, one a probe: different sums prove different sets. Equal sums count as
"not told apart", so chance can only make the certificate weaker than the truth.

Pairs: no link's probes are covered by those of any two other links (the plan's matrix is 2-disjunct). Then the failed
probes of every set of at most two faulty links belong to that set alone: a faulty link is exactly one without a
successful probe. The search is local: who covers a link must cover its first probe, so it is one of the few links on
that probe, and likewise the second. A cable's two directions are one such pair.

Disjunct matrices: D.-Z. Du and F. K. Hwang, Combinatorial Group Testing, 2000; identifiability of failures from path
measurements: L. Ma et al., IMC 2014.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.elements import PartKind, PlaneParts
from openmrc.operations.diagnosis.probe_plan import Links, ProbeSet

Bools = npt.NDArray[np.bool_]
_CELLS = 1 << 24  # of a working array
_EXAMPLES = 5


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What can be told apart in one plane."""

    plane: int
    parts: dict[str, int]  # by kind
    not_crossed: int  # parts, by any probe
    groups_not_told_apart: int
    examples: list[list[str]]  # of such groups of parts, the first few
    links: int
    links_two_others_can_hide: int  # these cover their probes
    hidden_examples: list[str]

    @property
    def singles_proven(self) -> bool:
        """Whether every fault of one part is told from every other."""
        return not self.not_crossed and not self.groups_not_told_apart

    @property
    def pairs_proven(self) -> bool:
        """Whether any two faulty directed links are named by their failed probes."""
        return self.singles_proven and not self.links_two_others_can_hide


def certify(parts: PlaneParts, probes: ProbeSet) -> Certificate:
    """Prove what a plane's probes tell apart."""
    sums, count = _signatures(parts, probes)
    groups = _equal(sums, count)
    masked = masked_links(probes.links, parts.links)
    kinds = (parts.links, parts.cables, parts.shape.switches)
    return Certificate(
        plane=parts.shape.plane,
        parts={kind.name.lower(): number for kind, number in zip(PartKind, kinds, strict=True)},
        not_crossed=int((count == 0).sum()),
        groups_not_told_apart=len(groups),
        examples=[[parts.name(int(part)) for part in group[:_EXAMPLES]] for group in groups[:_EXAMPLES]],
        links=parts.links,
        links_two_others_can_hide=len(masked),
        hidden_examples=[parts.name(int(link)) for link in masked[:_EXAMPLES]],
    )


def _signatures(parts: PlaneParts, probes: ProbeSet) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return for each part the sum of its probes' random numbers, and how many probes cross it."""
    draws = np.random.default_rng(27).integers(1, 1 << 63, len(probes), dtype=np.uint64)
    sums = np.zeros(parts.count, dtype=np.uint64)
    count = np.zeros(parts.count, dtype=np.int64)
    for row, part in crossings(parts, probes.links):
        np.add.at(sums, part, draws[row])
        count += np.bincount(part, minlength=parts.count)
    return sums, count


def crossings(parts: PlaneParts, links: Links) -> list[tuple[Ints, Ints]]:
    """Return (probe, part) of every part on every path, each once, as pieces by position on the path."""
    found = []
    before: list[Ints] = []
    for place in range(links.shape[1]):
        row = np.flatnonzero(links[:, place] >= 0)
        link = links[row, place].astype(np.int64)
        found.append((row, link))
        own = np.full((3, len(links)), -1, dtype=np.int64)
        own[0, row] = parts.links + parts.cable_of[link]
        own[1:, row] = parts.switches_of(link)
        for each in own:
            new = each >= 0
            for seen in before:
                new &= seen != each
            at = np.flatnonzero(new)
            found.append((at, each[at]))
            before.append(each)
    return found


def _equal(sums: npt.NDArray[np.uint64], count: Ints) -> list[Ints]:
    """Return the groups of parts with equal signatures."""
    order = np.flatnonzero(count)
    order = order[np.argsort(sums[order], kind="stable")]
    same = np.flatnonzero(sums[order][1:] == sums[order][:-1])
    if not len(same):
        return []
    first = same[np.concatenate([[True], np.diff(same) > 1])]
    last = same[np.concatenate([np.diff(same) > 1, [True]])] + 1
    return [order[begin : end + 1] for begin, end in zip(first, last, strict=True)]


def masked_links(links: Links, count: int) -> Ints:
    """Return the links whose probes are all crossed by some two other links."""
    probe, place = np.nonzero(links >= 0)
    link = links[probe, place].astype(np.int64)
    order = np.argsort(link, kind="stable")
    probe, link = probe[order], link[order]
    uses = np.bincount(link, minlength=count).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(uses)])
    found = [np.flatnonzero(uses == 0)]
    seen = np.flatnonzero(uses)
    seen = seen[np.argsort(uses[seen], kind="stable")]
    while len(seen):
        widest = int(uses[seen[: max(1, _CELLS // 64)]][-1])
        take = max(1, min(len(seen), _CELLS // (widest * links.shape[1])))
        some, seen = seen[:take], seen[take:]
        position = np.arange(int(uses[some[-1]]))
        mine = probe[np.minimum(first[some][:, None] + position, first[some + 1][:, None] - 1)]
        found.append(some[_masked(links, some, mine)])
    return np.sort(np.concatenate(found))


def _masked(links: Links, link: Ints, mine: Ints) -> Bools:
    """Return which links' probes (rows of `mine`, the last one repeated) two others cover."""
    at = np.arange(len(link))
    result: Bools = np.zeros(len(link), dtype=bool)
    for one in range(links.shape[1]):
        first = links[mine[:, 0], one]
        tried = np.flatnonzero((first >= 0) & (first != link))
        left = ~_crosses(links, mine[tried], first[tried])
        alone = ~left.any(axis=1)
        result[tried[alone]] = True
        tried, left = tried[~alone], left[~alone]
        following = mine[tried, left.argmax(axis=1)]
        for two in range(links.shape[1]):
            second = links[following, two]
            covered = ((~left) | _crosses(links, mine[tried], second)).all(axis=1)
            result[at[tried[covered & (second >= 0) & (second != link[tried])]]] = True
    return result


def _crosses(links: Links, probes: Ints, link: npt.NDArray[np.int32]) -> Bools:
    """Return which probes of each row cross that row's link."""
    crossed = np.zeros(probes.shape, dtype=bool)
    for place in range(links.shape[1]):
        crossed |= links[probes, place] == link[:, None]
    return crossed
