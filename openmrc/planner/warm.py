"""Compile the event simulation of jobs, by simulating one job of a day."""

from openmrc.fabric.model.parts import load_parts
from openmrc.planner.comparison import JobQuestion, answer


def warm() -> None:
    """Compile every entry, or load it from the cache."""
    answer(JobQuestion(gpus=64, days=1, jobs=1), "mrc", load_parts())
