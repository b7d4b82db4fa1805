"""The example that sends a file, on the NIC that a lab describes to its programs: `send FILE HOST`, `receive FILE`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from examples import send_file
from openmrc.programs.endpoint.access import hosts_of
from openmrc.programs.endpoint.opening import EndpointOptions, open_endpoint
from openmrc.verbs import ExchangeError, Listener

if __name__ == "__main__":
    end, file = sys.argv[1:3]
    token = os.environ["MRC_TOKEN"]
    with open_endpoint(EndpointOptions()) as context:
        if end == "receive":
            with Listener(context, hosts_of(None), port=send_file.PORT, token=token) as listener:
                send_file.receive(listener, Path(file))
        else:
            while True:
                try:
                    send_file.send(context, Path(file), sys.argv[3], token=token)
                    break
                except ExchangeError as error:
                    if "refused" not in str(error):  # the receiver does not listen yet
                        raise
