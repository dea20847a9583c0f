"""The migration planner: from an accepted schema to a new source, step by step.

Pure. Imports the schema language and the language ground.
"""

from omnigraph.lang.migrate.plan import MigrationPlan, SchemaPlan, list_steps, plan_migration
from omnigraph.lang.migrate.step import Step

__all__ = ["MigrationPlan", "SchemaPlan", "Step", "list_steps", "plan_migration"]
