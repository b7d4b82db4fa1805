"""A plane of the demo's result."""

from openmrc.programs.endpoint.shares import PlaneShare


def plane(number: int) -> PlaneShare:
    return PlaneShare(
        plane=number, address=f"127.0.{number}.1", sent_packets=9, sent_bytes=9, received_packets=0, received_bytes=0,
        share=0.5, retransmitted=1, lost=1, marked=0, trimmed=0, evs={"GOOD": 8},
    )  # fmt: skip
