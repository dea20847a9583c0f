"""`python -m omnigraph.server`: print the OpenAPI document."""

import json

from omnigraph.server.handlers.admin import SERVER_ROUTES
from omnigraph.server.openapi import describe

print(json.dumps(describe(SERVER_ROUTES), indent=1, ensure_ascii=False))
