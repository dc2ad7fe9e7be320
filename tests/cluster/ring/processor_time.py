#!/usr/bin/env python3
"""Prints which programs of this machine use the processors: `processor_time.py SECONDS`, for a ring that is idle or busy.

The kernel's process accounting counts whole ticks, so it misses most of a program that lives for some milliseconds; and it
says nothing about programs that still run. Here each thread's own clock is read at the start and at the end. A thread that
ended in between is missing: see `perf record -a` for these.
"""
import collections
import sys
import time
from pathlib import Path


def clocks() -> dict:
    """Thread -> its process's program, and the seconds for which the thread has run."""
    found = {}
    for thread in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        process = thread.parent.parent
        try:
            nanoseconds = int((thread / "schedstat").read_text().split()[0])
            found[thread.name] = (process / "comm").read_text().strip(), nanoseconds / 1e9
        except (OSError, IndexError):       # it has ended
            pass
    return found


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit() or int(sys.argv[1]) == 0:
        sys.exit(f"{sys.argv[0]}: expected the number of seconds, for example: {sys.argv[0]} 60")
    before = clocks()
    time.sleep(int(sys.argv[1]))
    used = collections.Counter()
    for thread, (program, seconds) in clocks().items():
        # A worker of the kernel changes its name with its work.
        used[program.partition("/")[0]] += seconds - before.get(thread, (program, 0))[1]
    print(f"{sum(used.values()):8.2f} s in {sys.argv[1]} s")
    for program, seconds in used.most_common(20):
        print(f"{seconds:8.2f} s {program}")


if __name__ == "__main__":
    main()
