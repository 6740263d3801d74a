"""Storage on disk: directories of arrays with a manifest, and files that are written atomically."""
