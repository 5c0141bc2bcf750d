"""What can be done about a slow training from outside: one file a remedy, applied in the user's process and undone.

A remedy's module holds

- a docstring: what it does, why that is of its class, and when it refuses,
- `ID` ("family.name"), `TITLE`, `SAFETY` ("lossless", "numeric" or "training"), and `TRAITS` (see `traits.py`),
- `VALUE`, where there is more to it than on and off (see `values.py`),
- `CONFLICTS`: ids that cannot be in force at the same time; the one named later in the profile wins,
- `applies(report)`: whether it would help a run like this one, with which value, or why not,
- `apply(site, value)`: does it, by patches that `site` undoes; raises `Refused` where it cannot be done right.

Loaded by file location in the user's process, where flatout need not be installed: relative imports only, and torch is
handed in.
"""
