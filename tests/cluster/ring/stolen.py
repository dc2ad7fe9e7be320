"""The processor time that this virtual machine's host takes. Programs that launch one kernel after the other are
delayed by it, so tests of shares allow a point for each per cent, and print it (as tests/isolation/share_test.cc
does)."""


def _ticks():
    with open("/proc/stat", encoding="ascii") as file:
        # user nice system idle iowait irq softirq steal
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[7], ticks[3] + ticks[4], sum(ticks)


class Stolen:
    """Counts from construction."""

    def __init__(self):
        self.then = _ticks()

    def percent(self) -> float:
        """Per cent of all processor time since construction."""
        stolen, _, everything = (now - then for now, then in zip(_ticks(), self.then))
        return 100 * stolen / everything if everything > 0 else 0.0

    def busy_percent(self) -> float:
        """How busy the processors were since construction, with what the host took."""
        _, idle, everything = (now - then for now, then in zip(_ticks(), self.then))
        return 100 * (everything - idle) / everything if everything > 0 else 0.0
