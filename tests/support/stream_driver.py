"""A driver of its own: streams the changes of one graph into another, where each of them is an entity.

python -m tests.support.stream_driver '{"graph": …, "log": …, "checkpoint": …}'
"""

from __future__ import annotations

import json
import sys

from omnigraph.spark.session import session

LOG = """
node Change {
  key: String @key
  commit: String
  kind: String
  name: String
  entity: String
  op: String
  before: String?
  after: String?
}
"""
COLUMNS = (
    "concat_ws('/', graph_commit_id, kind, type, id) as key",
    "graph_commit_id as commit",
    "kind",
    "type as name",
    "id as entity",
    "op",
    "before",
    "after",
)


def main(given: dict[str, str]) -> None:
    feed = session("local[2]").readStream.format("omnigraph").option("start", "beginning")
    changes = feed.option("maxCommitsPerTrigger", 2).load(given["graph"]).selectExpr(*COLUMNS)
    log = changes.writeStream.format("omnigraph").option("graph", given["log"]).option("type", "Change")
    log.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
