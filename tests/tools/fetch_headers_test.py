#!/usr/bin/env python3
"""sim/export/fetch_headers, started by several processes at one time, as third-party tests do: each gets all headers,
each package is fetched once. A script replaces pip, so the test needs no network."""
import concurrent.futures
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "sim" / "export" / "fetch_headers"
PIP = """#!/bin/sh
[ "$2" = pip ] || exec {python} "$@"
while [ "$1" != -d ]; do shift; done
echo "$3" >> {log}
mkdir -p "$2" && sleep 0.1
cd "$2" && echo header > "$3.h" && {python} -m zipfile -c "$3.whl" "$3.h" && rm "$3.h"
"""


class FetchHeaders(unittest.TestCase):
    def test_concurrent_calls_get_all_headers_and_fetch_each_package_once(self):
        with tempfile.TemporaryDirectory() as folder:
            cache, log = pathlib.Path(folder, "cache"), pathlib.Path(folder, "fetched")
            python = pathlib.Path(folder, "python3")
            python.write_text(PIP.format(python=sys.executable, log=log))
            python.chmod(0o755)
            env = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            with concurrent.futures.ThreadPoolExecutor(4) as together:
                ask = functools.partial(subprocess.run, [SCRIPT, cache], env=env, capture_output=True, text=True)
                asked = [one.result() for one in [together.submit(ask) for _ in range(4)]]
            self.assertEqual([(one.returncode, one.stdout.strip()) for one in asked], [(0, str(cache))] * 4,
                             [one.stderr for one in asked])
            fetched = log.read_text().split()
            self.assertEqual(len(fetched), 4)
            self.assertEqual(sorted(path.name for path in cache.glob("*/*.h")), sorted(f"{one}.h" for one in fetched))


if __name__ == "__main__":
    unittest.main()
