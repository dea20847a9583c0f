"""Loosely typed names for Arrow's compute kernels and arrays, whose stubs cover only part of what the kernels accept.

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
