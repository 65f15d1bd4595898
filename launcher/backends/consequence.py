"""How gloo, NCCL and the store tell a rank that another one is gone: what such a rank says is not why a run died."""

from __future__ import annotations

import re

CONSEQUENCE = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|DistBackendError|DistNetworkError|DistStoreError"
    r"|recvValue failed|sendBytes failed|gloo/transport/|Gloo connectFullMesh failed|NCCL communicator was aborted"
    r"|Socket Timeout"
)
"""Searched in the line that ends a rank's traceback. Every error of gloo's transport names its source file."""
