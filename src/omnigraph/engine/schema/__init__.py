"""Schema changes of a live graph: planned against what is accepted, applied as one commit.

May import the ground, the languages, the store and the kernel.
"""

from omnigraph.engine.schema.apply import apply, plan
from omnigraph.engine.schema.handle import Schema, schema_source
from omnigraph.engine.schema.receipt import SchemaReceipt

__all__ = ["Schema", "SchemaReceipt", "apply", "plan", "schema_source"]
