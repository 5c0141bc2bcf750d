"""What trains in a project: the regions of a step, the jobs they belong to, loaders, datasets, tensors and syncs."""
