"""Arrow's compute kernels and arrays, typed loosely: the stubs know only a part of what kernels take and give.

`pc` is `pyarrow.compute`; a `Column` is an Arrow array, `Numbers` a numpy array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute
arrays: Any = pa
Column: TypeAlias = Any
Numbers: TypeAlias = Any
