"""The migration planner: from an accepted schema to a new source, step by step.

Pure. Imports the schema language and the language ground.
"""

from omnigraph.lang.migrate.compare import Step
from omnigraph.lang.migrate.plan import MigrationPlan, plan_migration

__all__ = ["MigrationPlan", "Step", "plan_migration"]
