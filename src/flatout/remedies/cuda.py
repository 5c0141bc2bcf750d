"""Is there a GPU for this process? Asked of the driver's monitor alone.

torch.cuda.is_available() would start the driver in this process, and children forked from it could then not use
the GPU any more.
"""

from __future__ import annotations

from typing import Any


def has_gpu(torch: Any) -> bool:
    """False only where it is certain that none can be used."""
    if torch.version.cuda is None:
        return False
    try:
        return bool(torch.cuda._device_count_nvml() != 0)
    except Exception:
        return True
