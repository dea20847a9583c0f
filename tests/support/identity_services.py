"""Where clients of object stores ask their cloud for credentials if they have none: in tests, nowhere."""

from __future__ import annotations

import os
from typing import Final

# Nothing listens there, so that no test reaches out of this machine.
_NOWHERE: Final = "127.0.0.1:9"
IDENTITY_SERVICES: Final = {
    "AWS_METADATA_ENDPOINT": f"http://{_NOWHERE}",
    "GCE_METADATA_HOST": _NOWHERE,
    "GCE_METADATA_ROOT": _NOWHERE,
    "GCE_METADATA_IP": _NOWHERE,
    "AZURE_MSI_ENDPOINT": f"http://{_NOWHERE}/",
    "IDENTITY_ENDPOINT": f"http://{_NOWHERE}/",
}


def disable_identity_services() -> None:
    """Keep this process, and all that it starts, from asking."""
    os.environ.update(IDENTITY_SERVICES)
