"""Memory of the process and of its accelerator, without waiting for either."""

from __future__ import annotations

import math
import os
import time
from typing import Any, Optional

MIB = 1 << 20
MAX_AGE_S = 0.1  # resident memory moves slowly, and the kernel takes longer to tell than JSON to write


class MemoryMeter:
    """Reads resident memory from an open /proc file: a few microseconds per step."""

    def __init__(self, torch: Any) -> None:
        """Open the file where the system has one (Linux)."""
        cuda = getattr(torch, "cuda", None)
        self._cuda = cuda if hasattr(torch._C, "_cuda_getDeviceCount") else None  # torch built without it: never asks
        self._rss_text = "null"
        self._read_at = -math.inf
        self._fd: Optional[int] = None
        self._page_mib = 0.0
        try:
            self._page_mib = os.sysconf("SC_PAGE_SIZE") / MIB
            self._fd = os.open("/proc/self/statm", os.O_RDONLY)
        except (OSError, ValueError, AttributeError):
            pass

    def rss_text(self) -> str:
        """Return the resident memory in MiB as JSON, at most MAX_AGE_S old; null where the system does not say."""
        now = time.monotonic()
        if self._fd is not None and now - self._read_at > MAX_AGE_S:
            self._rss_text = repr(int(os.pread(self._fd, 64, 0).split()[1]) * self._page_mib)
            self._read_at = now
        return self._rss_text

    def cuda_mib(self) -> Optional[float]:
        """Return the peak of memory allocated on the current CUDA device in MiB, if it is in use."""
        if self._cuda is None or not self._cuda.is_initialized():
            return None
        return self._cuda.max_memory_allocated() / MIB
