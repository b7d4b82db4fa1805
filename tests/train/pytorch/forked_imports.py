"""What the process imports that `forked` forks: torch, the backend, and compiled code."""

from __future__ import annotations

import os
from contextlib import suppress

os.environ["OMP_NUM_THREADS"] = "1"  # no threads of libraries

from torch.nn.parallel import DistributedDataParallel

from openmrc.train.links.devices import open_context
from openmrc.train.pytorch import process_group

with suppress(ImportError):
    import torchft as torchft

LOADED = DistributedDataParallel, process_group.SHAPE
open_context("1", 1).close()
