"""`python -m omnigraph.server`: prints the description of the interface, as `docs/openapi.json` holds it."""

import json

from omnigraph.server.handlers.admin import SERVER_ROUTES
from omnigraph.server.openapi import describe

print(json.dumps(describe(SERVER_ROUTES), indent=1, ensure_ascii=False))
