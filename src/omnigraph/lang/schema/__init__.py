"""The `.pg` schema language: compile a source, keep its identities, ask its catalog.

Pure. Imports the language ground only; `arrow` and `keys` need pyarrow and are imported by those who use them.
"""

from omnigraph.lang.schema.compile import CompiledSchema, catalog_of, compile_schema
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.shape import SchemaShape

__all__ = ["CompiledSchema", "SchemaIR", "SchemaShape", "catalog_of", "compile_schema"]
