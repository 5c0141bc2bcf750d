"""Config files with one value changed: by editing its text, so that all else, comments too, stays as it is."""
