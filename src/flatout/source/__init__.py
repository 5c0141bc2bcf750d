"""Reads the source of a training project without running it.

Each folder imports only those before it: `syntax` (files, modules, edits), `project` (names and calls across files),
`flow` (where values come from, when code runs), `training` (steps, jobs, loaders, datasets, tensors, syncs). `code` is
what detectors ask; `loops` and `epochs` answer questions that need all of it.
"""
