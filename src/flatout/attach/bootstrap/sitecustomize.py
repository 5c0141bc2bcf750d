"""Python imports this first in every interpreter below `flatout run`: it readies the tracer for when torch comes.

Standard library only, and it never raises: whatever goes wrong here, the user's script runs bare.
"""

import os
import sys


def _attach(attach_folder: str) -> None:
    if not os.environ.get("FLATOUT_RUN_DIR") or "_flatout_attach" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    # By file location, under a name of its own: flatout's environment and the user's never mix.
    spec = spec_from_file_location(
        "_flatout_attach", os.path.join(attach_folder, "__init__.py"), submodule_search_locations=[attach_folder]
    )
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["_flatout_attach"] = module
    try:
        spec.loader.exec_module(module)
        module.wait_for_torch()
    except BaseException:
        del sys.modules["_flatout_attach"]
        raise


def _run_shadowed(own_folder: str) -> None:
    """Run the sitecustomize that ours hides, as Python would have."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    path = [p for p in sys.path if os.path.realpath(p or ".") != own_folder]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_here = os.path.dirname(os.path.realpath(__file__))
try:
    _attach(os.path.dirname(_here))
except Exception as _error:
    try:
        sys.stderr.write(f"flatout: not watching this process ({type(_error).__name__}: {_error})\n")
    except Exception:
        pass
_run_shadowed(_here)
