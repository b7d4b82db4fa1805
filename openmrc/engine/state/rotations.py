"""What programs read of rotations."""

from openmrc.core.rows import column
from openmrc.engine.state.tables import Engine


def active_rows(engine: Engine, qp: int) -> set[int]:
    """Return the rows of the EVs that a queue pair has in rotation."""
    row, offsets = engine.qps[qp], column(engine.slots, "ev")
    found: set[int] = set()
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        rotation = engine.rotations[index]
        active = offsets[rotation.ev_base : rotation.ev_base + rotation.active]
        found.update(rotation.ev_base + offset for offset in active.tolist())  # rows need more bits than offsets
    return found
