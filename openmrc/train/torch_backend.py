"""The `torch.distributed` backend `mrc`: collectives over MRC.

    import torch.distributed as dist
    import openmrc.train.torch_backend        # registers it; `import torch` does so if openmrc is installed

    dist.init_process_group("mrc")            # planes: $MRC_PLANES, else the interfaces
    dist.init_process_group("mrc", pg_options=Options(planes=["10.1.0.7", "10.2.0.7"]))

Importing this module registers the backend; the transport is loaded when a group is created. Tested with PyTorch 2.13.
"""

from __future__ import annotations

from openmrc.train.pytorch.hooks import bfloat16_hook
from openmrc.train.pytorch.options import Options
from openmrc.train.pytorch.quorum import Quorum
from openmrc.train.pytorch.registration import autoload, group_of, monitored_barrier, register

__all__ = ["Options", "Quorum", "autoload", "bfloat16_hook", "group_of", "monitored_barrier", "register"]

register()
