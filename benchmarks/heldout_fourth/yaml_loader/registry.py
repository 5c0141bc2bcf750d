# mypy: ignore-errors
"""Builders by name, filled by decorators."""


class Registry:
    def __init__(self, name):
        self.name, self.entries = name, {}

    def register(self, cls):
        self.entries[cls.__name__] = cls
        return cls

    def build(self, type, **kwargs):
        if type not in self.entries:
            raise KeyError(f"{type} is not a {self.name}")
        return self.entries[type](**kwargs)


DATASETS = Registry("dataset")
NETWORKS = Registry("network")
