"""Names of the spraying policies, as scenarios and the command line spell them."""

from typing import Literal

LoadBalancing = Literal["oblivious", "bitmap", "reps", "mixed"]
