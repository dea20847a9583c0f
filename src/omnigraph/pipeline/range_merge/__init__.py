"""Branch merge on Spark: `merge` drives, `tasks` merge ranges of ids, `keys` checks rules across rows."""
