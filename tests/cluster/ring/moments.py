"""When things happened, as seconds of the wall clock: ends of processes from the kernel, starts of containers from the
runtime's log, writes from the API server's audit log."""
import json
import os
import re
import select
import threading
import time
from datetime import datetime, timezone

from . import control_plane


def of_rfc3339(text):
    """2026-01-31T23:59:59.123456789Z, with any fraction or none."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp() + \
        float("0." + (fraction or "0"))


class Ends:
    """Waits for the ends of these processes, from now on."""

    def __init__(self, pids):
        self.ended = {}
        self._threads = [threading.Thread(target=self._wait, args=(pid, os.pidfd_open(pid)), daemon=True) for pid in pids]
        for thread in self._threads:
            thread.start()

    def _wait(self, pid, descriptor):
        select.select([descriptor], [], [])
        self.ended[pid] = time.time()
        os.close(descriptor)

    def last(self, seconds=60):
        """When the last of the processes ended."""
        for thread in self._threads:
            thread.join(seconds)
        if len(self.ended) < len(self._threads):
            raise AssertionError(f"after {seconds} s only {sorted(self.ended)} of the processes have ended")
        return max(self.ended.values())


def started(node, container):
    """When that node's runtime had started the container with this id."""
    for line in node.state.log(f"{node.name}-containerd").read_text(errors="replace").splitlines():
        if "StartContainer for" in line and "returns successfully" in line and container in line:
            return of_rfc3339(re.search(r'time="([^"]+)"', line).group(1))
    raise AssertionError(f"the runtime's log does not name {container}")


class Written:
    """The writes that the API server answers, from now on."""

    def __init__(self, ring):
        self._log = ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        self._begin = self._log.stat().st_size

    def first(self, after, verb, what, wanted=lambda event: True):
        """When the first such request received after that moment was answered; None when none was. `what`:
        "pods/binding"."""
        with self._log.open() as file:
            file.seek(self._begin)
            for line in file:
                event = json.loads(line)
                reference = event.get("objectRef") or {}
                kind = "/".join(filter(None, (reference.get("resource", ""), reference.get("subresource", ""))))
                if event["verb"] == verb and kind == what and wanted(event) and \
                        of_rfc3339(event["requestReceivedTimestamp"]) >= after:
                    return of_rfc3339(event["stageTimestamp"])
        return None
