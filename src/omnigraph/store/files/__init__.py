"""Physical files: manifests decoded, reachability, integrity and shredding."""
