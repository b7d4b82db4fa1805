"""The schema of a struct has the same text on every Python."""

from msgspec import Struct

from openmrc.base.documents import schema_of, schema_text


class Described(Struct):
    """One line.

    Another paragraph.
    """

    value: int


def test_docstrings_of_several_lines_are_dedented() -> None:
    schema = schema_of(Described)
    assert schema["$defs"]["Described"]["description"] == "One line.\n\nAnother paragraph."
    assert schema_text(Described).endswith("}\n")
