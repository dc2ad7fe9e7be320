"""exposition.py finds planted faults, and reports nothing for a good text."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import exposition  # noqa: E402

GOOD = """# HELP a_requests_total Requests.
# TYPE a_requests_total counter
a_requests_total{verb="a b, c",outcome="\\"ok\\"}"} 3
a_requests_total{verb="x",outcome=""} 0
# HELP a_wait_seconds Waiting.
# TYPE a_wait_seconds histogram
a_wait_seconds_bucket{le="0.5"} 1
a_wait_seconds_bucket{le="+Inf"} 2
a_wait_seconds_sum 1.5
a_wait_seconds_count 2
# HELP a_size_bytes A size.
# TYPE a_size_bytes gauge
a_size_bytes 1e+09
"""


class Planted(unittest.TestCase):
    def test_accepts_a_good_text(self):
        self.assertEqual(exposition.check(GOOD), [])

    def test_finds_each_fault(self):
        for old, new, expected in (
                ("# HELP a_size_bytes A size.\n", "", "0 lines of HELP"),
                ("# TYPE a_size_bytes gauge\n", "", "0 lines of TYPE"),
                ("# TYPE a_size_bytes gauge\n", "# TYPE a_size_bytes gauge\n" * 2, "2 lines of TYPE"),
                ("gauge", "number", "number is no type"),
                ("a_requests_total", "a_requests", "a_requests: a counter"),
                ("a_size_bytes", "a_size_total", "a_size_total: a gauge"),
                ("a_size_bytes", "a_size_mib", "not in a base unit"),
                ("a_wait_seconds", "a_wait_ms", "not in a base unit"),
                ('verb="x"', 'verB="x"', "label 'verB'"),
                ('verb="x"', 'outcome="x"', "a label twice"),
                ('{verb="x",outcome=""} 0', '{outcome="\\"ok\\"}",verb="a b, c"} 0', "twice"),
                ('{verb="x",outcome=""}', '{verb="x}', "cannot be read"),
                ("a_size_bytes 1e+09", "a_size_bytes many", "cannot be read"),
                ("a_size_bytes 1e+09\n", "a_size_bytes 1e+09", "no line end"),
                ("a_size_bytes 1e+09", "b 1", "b: neither HELP nor TYPE"),
                ('a_wait_seconds_bucket{le="+Inf"} 2\n', "", "buckets ['0.5']"),
                ('{le="0.5"} 1', '{le="0.5"} 3', "buckets hold"),
                ("a_wait_seconds_count 2", "a_wait_seconds_count 3", "buckets hold"),
                ("a_wait_seconds_sum 1.5", "a_wait_seconds 1.5", "does not belong to a histogram"),
                ("a_wait_seconds_sum 1.5\n", "", "0 sums")):
            with self.subTest(expected, new=new):
                self.assertIn(old, GOOD)
                self.assertIn(expected, "; ".join(exposition.check(GOOD.replace(old, new))))


if __name__ == "__main__":
    unittest.main()
