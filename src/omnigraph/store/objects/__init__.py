"""Control objects: small files with atomic replace and put-if-absent, on local disk or in an object store."""
