"""Compare designs, and find the cheapest that meets all limits."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from openmrc.errors import ConfigError
from openmrc.fabric.model.clos import MOST_TIERS, capacity
from openmrc.fabric.model.parts import Parts, Switch
from openmrc.planner.design import Design, design

PLANES = (1, 2, 4, 8, 16)
OVERSUBSCRIPTIONS = (1.0, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class Wish:
    """The size to connect, and the limits."""

    gpus: int
    nic_gbps: float
    max_hops: int | None = None  # switches on the longest path
    max_loss_percent: float | None = None  # of a NIC, by one link, port or T0
    max_watts: float | None = None
    max_cost: float | None = None
    min_paths: int | None = None
    max_oversubscription: float = 1


def rails_of(gpus: int, wanted: int | None) -> int:
    """Return the rails of the rail-optimised design: as requested, or at most 8 that divide the NICs."""
    works = [rails for rails in range(1, 73) if gpus % rails == 0]
    if wanted is not None and gpus % wanted:
        near = min(works, key=lambda rails: abs(rails - wanted))
        raise ConfigError(f"{gpus} NICs do not divide into {wanted} rails; use {near}")
    return wanted or max(rails for rails in works if rails <= 8)


def compared(
    wish: Wish, planes: int, switch: Switch, parts: Parts, rails: int = 1, oversubscription: float = 1
) -> list[Design]:
    """Return the multi-plane design first, then the alternatives, all with the same oversubscription at T0.

    The single-plane fat tree is always shown in three tiers, and also in fewer tiers if they suffice. If three tiers
    cannot hold all NICs, it is counted as separate islands, the basis of the published ratios, and as one network of
    four tiers.
    """
    radix = switch.radix(wish.nic_gbps)

    def holds(tiers: int, nics: int) -> bool:
        return capacity(radix, tiers, oversubscription) >= nics

    def planned(name: str, planes: int = 1, rails: int = 1, tiers: int | None = None) -> Design:
        return design(
            name, wish.gpus, wish.nic_gbps, switch, parts,
            planes=planes, rails=rails, tiers=tiers, oversubscription=oversubscription,
        )  # fmt: skip

    designs = [planned(f"{planes}-plane", planes)]
    fewest = next((tiers for tiers in (1, 2) if holds(tiers, wish.gpus)), 3)
    three = planned("single-plane-3-tier", tiers=3)
    if planes > 1 and fewest < 3:
        designs.append(planned(f"single-plane-{fewest}-tier", tiers=fewest))
    if planes > 1 or designs[0].tiers != 3:
        designs.append(three)
    if three.islands > 1 and holds(4, wish.gpus):
        designs.append(planned("single-plane-4-tier", tiers=4))
    if rails > 1 and wish.gpus % rails == 0 and holds(MOST_TIERS, -(-wish.gpus // rails)):
        designs.append(planned(f"rail-optimised-{rails}", rails=rails))
    return designs


def ratios(designs: list[Design]) -> dict[str, dict[str, float]]:
    """Return the first design's optics, switches, watts and cost as shares of each other's."""
    first = designs[0]
    return {
        other.name: {
            "optics": first.optics / other.optics,
            "switches": first.total_switches / other.total_switches,
            "watts": first.watts / other.watts if other.watts else 1.0,
            "cost": first.cost / other.cost if other.cost else 1.0,
        }
        for other in designs[1:]
    }


def cheapest(wish: Wish, parts: Parts) -> list[Design]:
    """Return the designs that meet the limits as one network, cheapest first; ConfigError if there is none."""
    found = list(_candidates(wish, parts))
    good = [candidate for candidate in found if not missed(candidate, wish)]
    if not good:
        raise ConfigError(_nearest(found, wish))
    return sorted(good, key=lambda each: (each.cost, each.watts, each.max_hops, each.planes))


def missed(candidate: Design, wish: Wish) -> list[str]:
    loss = candidate.loss_percent()["nic_link"]
    limits = (
        ("max-hops", candidate.max_hops, wish.max_hops),
        ("max-loss", loss, wish.max_loss_percent),
        ("max-watts", candidate.watts, wish.max_watts),
        ("max-cost", candidate.cost, wish.max_cost),
    )
    broken = [
        f"{name} {limit:g} (it has {value:g})" for name, value, limit in limits if limit is not None and value > limit
    ]
    paths = candidate.planes * candidate.network.paths
    if wish.min_paths is not None and paths < wish.min_paths:
        broken.append(f"min-paths {wish.min_paths} (it has {paths})")
    return broken


def _candidates(wish: Wish, parts: Parts) -> Iterator[Design]:
    """Yield a design for each switch, number of planes and oversubscription, in the fewest tiers that hold all."""
    for switch, planes, over in itertools.product(parts.switches, PLANES, OVERSUBSCRIPTIONS):
        radix = switch.radix(wish.nic_gbps / planes)
        if over > wish.max_oversubscription or wish.nic_gbps % planes or radix < 2 or radix % 2:
            continue
        tiers = next((k for k in range(1, MOST_TIERS + 1) if capacity(radix, k, over) >= wish.gpus), None)
        if tiers is None:
            continue
        name = f"{planes}-plane-{tiers}-tier-{switch.name}" + (f"-{over:g}:1" if over > 1 else "")
        base = (wish.gpus, wish.nic_gbps, switch, parts)
        yield design(name, *base, planes=planes, tiers=tiers, oversubscription=over)


def _nearest(found: list[Design], wish: Wish) -> str:
    if not found:
        return f"no design of up to {MOST_TIERS} tiers holds {wish.gpus} NICs of {wish.nic_gbps:g}G with these parts"
    near = min(found, key=lambda each: (len(missed(each, wish)), each.cost))
    return f"no design meets all limits; nearest is {near.name}, which exceeds {' and '.join(missed(near, wish))}"
