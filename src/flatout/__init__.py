"""flatout: find what keeps a GPU idle while a PyTorch model trains, fix it, and prove the fix."""

__all__ = ["__version__"]
__version__ = "0.1.0"
