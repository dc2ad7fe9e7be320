"""Pods of higher priority that lack CPU and cards, with the cluster's own kube-scheduler configured to use control
(deploy/control/scheduler/default): all cases of preemption.py, through its other verbs (filter, not choose).
"""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import control  # noqa: E402
import preemption  # noqa: E402
from ring.testing import main  # noqa: E402


def setUpModule():
    control.setUpModule(own_scheduler=False)


class WithCpu(preemption.WithCpu):
    scheduler = "kube-scheduler"


if __name__ == "__main__":
    main()
