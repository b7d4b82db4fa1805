"""What became of every packet on every link: sent + duplicated = arrived + losses by cause + on the way.

A simulated packet ends in one of three ways: it arrives, its queue has no room, or its wire loses it. The causes are
those of the lab (`openmrc.lab.accounting`) as far as a simulation has them.
"""

from dataclasses import dataclass

from openmrc.core.arrays import Ints


@dataclass(frozen=True)
class LinkAccounts:
    sent: Ints  # given to the port by its node
    duplicated: Ints  # copies that the wire made
    arrived: Ints
    full: Ints  # lost: no room, and they must not be trimmed
    control_full: Ints  # lost: control and trimmed packets alone were more than the port carries
    down: Ints  # lost: on the wire, or put on it, while the link was down
    at_random: Ints  # lost by chance
    on_the_way: Ints  # queued, on the wire or held back: everything else

    @property
    def lost(self) -> Ints:
        return self.full + self.control_full + self.down + self.at_random


def link_accounts(links: dict[str, Ints]) -> LinkAccounts:
    """Account for the packets of a run's links (`Results.links`)."""
    carried = links["data_packets"] + links["control_packets"]
    return LinkAccounts(
        sent=carried + links["dropped"],
        duplicated=links["duplicated"],
        arrived=links["arrived"],
        full=links["dropped"] - links["control_full"],
        control_full=links["control_full"],
        down=links["lost"] - links["at_random"],
        at_random=links["at_random"],
        on_the_way=carried + links["duplicated"] - links["arrived"] - links["lost"],
    )
