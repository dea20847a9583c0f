"""Columns: one property of all entities of a type, held in memory in the forms that queries ask for.

Forms are made on first use and kept; the array itself is never changed.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.read.budget import charge_running
from omnigraph.engine.read.ordering import text_ranks
from omnigraph.engine.read.vectors import Ids, Lists, Numbers, Texts, arrow_of, vector_of

# A text column is worth coding when its first values repeat this often.
_SAMPLE: Final = 4_096
_SAMPLE_DISTINCT_MAX: Final = 512
_FEW: Final = 4


class Column:
    """A whole column."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @cached_property
    def vector(self) -> Numbers | Texts | Lists:
        return vector_of(self.array)

    def take(self, ids: Ids) -> Numbers | Texts | Lists:
        """Return the values of entities by dense id; a negative id gives null."""
        vector = self.vector
        if isinstance(vector, Numbers):
            return _take_numbers(vector, ids)
        if isinstance(vector, Texts) and len(ids) <= _FEW:
            # The fixed cost of a kernel is that of many single values. Lists stay with it: as Python values, instants
            # in them would come back as whole days.
            array = self.array
            few = [array[place].as_py() if place >= 0 else None for place in ids.tolist()]
            return Texts(pa.array(few, array.type))
        charge_running(len(ids) * self._value_bytes, "reading values")
        if isinstance(vector, Texts) and self.is_coded_for(len(ids)):
            coded: Any = pa.DictionaryArray.from_arrays(_arrow_places(self.codes_of(ids)), self.dictionary)
            return Texts(coded.cast(pa.string()))
        return type(vector)(vector.array.take(_arrow_places(ids)))

    @cached_property
    def _value_bytes(self) -> int:
        return int(self.array.nbytes) // max(len(self.array), 1)

    def ranks_of(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Return the rank of each text among the distinct ones of the column; -1 for null and for a negative id.

        Sorting by them needs no text of any row, of which there may be many more than entities.
        """
        return self._ranks.take(ids, mode="wrap")

    @cached_property
    def _ranks(self) -> npt.NDArray[np.int64]:
        return np.append(text_ranks(self.array), np.int64(-1))

    def take_arrow(self, ids: Ids, wanted: Any) -> Any:
        """Return the values of entities as an Arrow array, in a type that the column has or can be cast to."""
        array = self.array
        if len(ids) == 1 and array.type == wanted and ids[0] >= 0:
            # A slice costs a tenth of a gather.
            return array.slice(ids[0], 1)
        return arrow_of(self.take(ids), wanted, len(ids))

    def is_coded_for(self, count: int) -> bool:
        """Tell whether so many values are better handled by their codes."""
        return count > _SAMPLE and self.is_repetitive

    @cached_property
    def is_repetitive(self) -> bool:
        """Tell whether few distinct texts fill the column, so that codes are smaller and faster than texts."""
        if not isinstance(self.vector, Texts) or len(self.array) <= _SAMPLE:
            return False
        return len(pc.unique(self.array.slice(0, _SAMPLE))) <= _SAMPLE_DISTINCT_MAX

    @cached_property
    def _encoded(self) -> Any:
        return self.array.dictionary_encode()

    @cached_property
    def _codes(self) -> npt.NDArray[np.int32]:
        # The extra last place is what a null id reads.
        codes: npt.NDArray[np.int32] = self._encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.append(codes, np.int32(-1))

    @property
    def codes(self) -> npt.NDArray[np.int32]:
        """The place of each value in `dictionary`; -1 for null."""
        return self._codes[:-1]

    def codes_of(self, ids: Ids) -> npt.NDArray[np.int32]:
        """Return the codes of entities by dense id; -1 for a negative id."""
        return self._codes.take(ids, mode="wrap")

    @property
    def dictionary(self) -> Any:
        return self._encoded.dictionary

    @property
    def nbytes(self) -> int:
        total = int(self.array.nbytes)
        held = self.__dict__
        if "vector" in held and isinstance(self.vector, Numbers):
            total += int(self.vector.data.nbytes) + (0 if self.vector.valid is None else int(self.vector.valid.nbytes))
        if "_encoded" in held:
            total += int(self._encoded.nbytes) * 2
        total += sum(int(held[name].nbytes) for name in ("_codes", "_ranks") if name in held)
        return total


def _take_numbers(vector: Numbers, ids: Ids) -> Numbers:
    if len(vector.data) == 0:
        return Numbers(np.zeros(len(ids), vector.data.dtype), np.zeros(len(ids), np.bool_))
    # A negative id reads the last value, which the mask then hides.
    taken = vector.take(ids)
    if len(ids) and ids.min() < 0:
        present = ids >= 0
        return Numbers(taken.data, present if taken.valid is None else taken.valid & present)
    return taken


def _arrow_places(places: Ids) -> Any:
    if len(places) and places.min() < 0:
        return pa.array(places, mask=places < 0)
    return pa.array(places)
