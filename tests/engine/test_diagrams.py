"""The diagrams on the architecture page are drawn from the tables."""

from pathlib import Path

from openmrc.engine.diagrams import page


def test_the_architecture_page_shows_the_state_tables_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    assert page() in text, "put the output of openmrc.engine.diagrams.page() into docs/architecture.md"
