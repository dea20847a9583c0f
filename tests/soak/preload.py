"""What every member has imported before it is born, with limits under which seconds do for minutes.

Imported by the parent of all members alone, and before anything that reads limits.
"""

from __future__ import annotations

from omnigraph import limits
from tests.soak.worker import DEADLINE_SECONDS, RESIDUE_DEADLINES

for _name, _value in (
    ("PUBLISH_DEADLINE_SECONDS", DEADLINE_SECONDS),
    ("RESIDUE_AGE_SECONDS", RESIDUE_DEADLINES * DEADLINE_SECONDS),
    # A few hundred vectors are searched by the index, as tens of thousands are elsewhere.
    ("VECTOR_UNPARTITIONED_ROWS_MAX", 100),
    ("VECTOR_PARTITION_ROWS", 32),
    ("VECTOR_MATRIX_BYTES_MAX", 1_000),
):
    setattr(limits, _name, _value)

import tests.soak.members  # noqa: E402, F401 - only now
