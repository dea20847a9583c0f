"""The HTTP/1.1 host: listener, connections and exchanges."""
