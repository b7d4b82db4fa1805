"""The state tables on the architecture page are those of the engine."""

from pathlib import Path

from openmrc.engine.state.machines import QP_TRANSITIONS, QpEvent, QpState
from spec.state_machines import page, table


def test_the_architecture_page_shows_the_state_tables_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page() in text, "put the output of spec.state_machines.page() into docs/architecture.md"


def test_a_row_holds_the_next_state_for_each_state_and_nothing_where_the_event_is_illegal() -> None:
    rows = table(QpState, QpEvent, QP_TRANSITIONS).splitlines()
    assert rows[0] == "| event in state | RESET | INIT | RTR | RTS | ERROR |"
    assert rows[3] == "| TO_RTR |  | RTR |  |  |  |"
