"""The `.pg` schema language: compile a source, keep its identities, ask its catalog.

Pure. Imports the language ground only; `arrow_schema` and `key_ids` need pyarrow and are imported where they are used.
"""

from omnigraph.lang.schema.compile import CompiledSchema, catalog_of, compile_schema
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.shape import SchemaShape

__all__ = ["CompiledSchema", "SchemaIR", "SchemaShape", "catalog_of", "compile_schema"]
