"""The two clocks of a process, in one place so that tests can bring their own.

`monotonic` orders what happens within one process, and decides whether a
confirmation is still fresh; `wall_us` only stamps records for people.
"""

from __future__ import annotations

import time


class Clock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds that never go back; where the system can tell, they pass while the
        machine is suspended too, for a machine that slept must not think it is fresh."""
        return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)
