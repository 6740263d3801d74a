"""What rests on disk: directories of arrays with a manifest, and files that appear whole."""
