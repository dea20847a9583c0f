"""Export one snapshot for graph tools: GraphML, GEXF, DOT and Cypher.

Nodes come before edges, types by name, entities by id. Ids are unique within a type, so a node is called `Type:id`.
"""
