"""The second process of the demo: `python -m openmrc.programs.demo.receiver_process PLANES FAULTS --ready-fd FD`."""

from __future__ import annotations

import os
import sys

from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.nic_file import TOKEN_VARIABLE
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo.memory_transfer import MemoryReceiver
from openmrc.programs.endpoint.access import AccessPolicy
from openmrc.programs.endpoint.listening import Refusals, announce_port, open_listener
from openmrc.programs.endpoint.opening import EndpointOptions, connection_options, open_endpoint

WAIT_SECONDS = 60.0  # s for the sender
TIMEOUT = 30.0  # s without progress


def _complain(line: str) -> None:
    sys.stderr.write(f"mrc demo, receiver: {line}\n")


def receive(planes: int, faults: Schedule, ready_fd: int) -> None:
    """Receive from one sender that has the token of the environment, on `planes` loopback planes."""
    options = EndpointOptions(tuple(loopback_planes(planes, EndpointSide.SERVER)))
    access = AccessPolicy(("127.0.0.1",), os.environ[TOKEN_VARIABLE])
    with (
        Refusals(_complain) as refusals,
        open_endpoint(options) as context,
        open_listener(context, 0, access, refusals) as listener,
    ):
        announce_port(listener, ready_fd)
        MemoryReceiver(context, faults, connection_options(context, 0, TIMEOUT)).serve(listener, WAIT_SECONDS, refusals)


def main() -> None:
    """Run the process; the sender knows the reason of a failure from its connection."""
    planes, faults, _, ready_fd = sys.argv[1:]
    try:
        receive(int(planes), Schedule.parse(faults, "--impair"), int(ready_fd))
    except MrcError as error:
        _complain(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
