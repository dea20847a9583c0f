"""The `.pg` schema language: compile a source, keep its identities, ask its catalog.

Pure. Imports the language ground only; `arrow_schema` needs pyarrow and is imported where it is used.
"""

from omnigraph.lang.schema.compile import CompiledSchema, catalog_of, compile_schema
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.shape import SchemaShape

__all__ = ["CompiledSchema", "SchemaIR", "SchemaShape", "catalog_of", "compile_schema"]
