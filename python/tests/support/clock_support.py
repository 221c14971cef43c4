"""The clock of one process, set back by an hour: a library that cc compiles, loaded before
others.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int is_set_back(void) {
    const char *mark = getenv("CLOCK_IS_SET_BACK");
    return mark && access(mark, F_OK) == 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && clock == CLOCK_REALTIME && is_set_back()) now->tv_sec -= 3600;
    return done;
}

int gettimeofday(struct timeval *now, void *zone) {
    int done = syscall(SYS_gettimeofday, now, zone);
    if (done == 0 && is_set_back()) now->tv_sec -= 3600;
    return done;
}
"""
WHY_NOT = "the clock of one process is set by a library that cc compiles, on Linux"


class ProcessClock:
    """A clock for processes that are started with its environment."""

    def __init__(self, folder: Path) -> None:
        """Compile it. ``possible`` tells whether that can be done here."""
        self._mark = folder / "clock is set back"
        library = folder / "clock.so"
        source = folder / "clock.c"
        source.write_text(SOURCE)
        compiler = shutil.which("cc")
        assert compiler is not None
        made = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(made, check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_IS_SET_BACK": str(self._mark)}

    @staticmethod
    def possible() -> bool:
        return shutil.which("cc") is not None and sys.platform.startswith("linux")

    def set_back(self) -> None:
        """Set it back by an hour."""
        self._mark.touch()

    def set_right(self) -> None:
        """Set it forward again."""
        self._mark.unlink()
