"""Does faster recovery turn the answer? Goodput of each network by checkpoint interval and restart time.

python -m bench.jobs.checkpoints            prints the table of docs/month.md, a minute
"""

from __future__ import annotations

from openmrc.fabric.model.parts import load_parts
from openmrc.planner.comparison import TITLES, JobQuestion, answer
from openmrc.planner.policy import Policy

MINUTES = ((30, 15), (15, 5), (5, 3), (1, 1))  # checkpoint, restart


def main() -> None:
    """Print a row for each pair of times."""
    parts = load_parts()
    print(f"| checkpoint / restart, minutes | {' | '.join(TITLES.values())} | MRC leads by |")
    for every, restart in MINUTES:
        policy = Policy(checkpoint_s=60.0 * every, restart_s=60.0 * restart, lag_s=min(60.0, 30.0 * every))
        good = [100 * float(answer(JobQuestion(jobs=40, policy=policy), name, parts).goodput.mean()) for name in TITLES]
        best = max(value for name, value in zip(TITLES, good, strict=True) if name.startswith("roce"))
        print(f"| {every} / {restart} | {' | '.join(f'{value:.2f}' for value in good)} | {good[0] - best:.2f} |")


if __name__ == "__main__":
    main()
