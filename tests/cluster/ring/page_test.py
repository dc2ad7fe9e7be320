"""page.py reads a page as a reader does, and the tables of scenario/kubernetes_page.py cover all of docs/kubernetes.md.
Needs no ring."""
import re
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "scenario"))
import kubernetes_page as played  # noqa: E402
from ring import page  # noqa: E402

SAMPLE = """Words, `kubectl get
pods` among them.

```
$ one --flag 'a
b'          # why
shown 1
…
$ two \\
    more
$ cat <<END | three
kind: $ Pod
END
made
```

```
exactly: {a: b}
```
"""
# Steps in the running text, which no test would play.
STEPS = re.compile(r"\b(kubectl|helm|sed|ctr|podman|deploy/image)\b.*\b(apply|create|delete|set|label|annotate|install|"
                   r"upgrade|uninstall|exec|patch|edit|rollout|scale|wait|import|load|-i)\b")


class Reading(unittest.TestCase):
    def test_commands_with_their_outputs_and_fragments_are_found_in_order(self):
        found = [(step.line, step.key, step.text, step.shown, step.fragment) for step in page.steps(SAMPLE)]
        self.assertEqual(found, [
            (5, "one --flag 'a", "one --flag 'a\nb'          # why", ["shown 1", "…"], False),
            (9, "two", "two \\\n    more", [], False),
            (11, "cat <<END | three", "cat <<END | three\nkind: $ Pod\nEND", ["made"], False),
            (18, "exactly: {a: b}", "exactly: {a: b}\n", [], True)])
        self.assertEqual(page.inline(SAMPLE), ["kubectl get pods"])

    def test_a_session_that_begins_with_output_is_refused(self):
        with self.assertRaisesRegex(ValueError, "line 2: output before the first command"):
            page.steps("```\nshown\n$ one\n```\n")


class Comparing(unittest.TestCase):
    VOLATILE = ((r"\d+s$", "AGE"),)

    def same(self, shown, printed):
        self.assertIsNone(page.difference(shown, printed, self.VOLATILE))

    def differ(self, shown, printed):
        self.assertIsNotNone(page.difference(shown, printed, self.VOLATILE))

    def test_the_same_lines_are_the_same(self):
        self.same(["NAME   AGE", "a      1s"], "NAME     AGE\na        12s\n")
        self.same(["a", "…", "d", "…"], "a\nb\nc\nd\ne\n")
        self.same(["…", "d"], "a\nd\n")
        self.same(["…", "a", "b", "…"], "a\nc\na\nb\nc\n")      # not the first `a`
        self.same(["a, b and …"], "a, b and c\n")
        self.same(["a", "…", "c"], "a\nc\n")
        self.same([], "whatever\n")

    def test_another_line_is_a_difference(self):
        for shown, printed in ((["a"], "b\n"), (["a"], "a\nb\n"), (["a", "b"], "a\n"), (["a"], ""),
                               (["b", "a"], "a\nb\n"), (["a", "c"], "a\nb\nc\n"), (["a", "…", "z"], "a\nb\n"),
                               (["…", "a"], "a\nb\n"), (["…", "a", "b", "…"], "a\nc\nb\n"),
                               (["a 1m"], "a 2m\n"), (["a, c …"], "a, b\n"), (["a"], "ab\n")):
            with self.subTest(shown=shown, printed=printed):
                self.differ(shown, printed)


class TheTables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.steps = page.steps(played.TEXT)
        cls.commands = [step for step in cls.steps if not step.fragment and step.key not in played.NOT_RUN]

    def test_each_command_that_is_not_run_is_on_the_page_once_and_has_a_reason(self):
        keys = [step.key for step in self.steps]
        for key, reason in played.NOT_RUN.items():
            self.assertEqual(keys.count(key), 1, key)
            self.assertGreater(len(reason.split()), 2, key)

    def test_each_check_belongs_to_one_command_that_is_run(self):
        keys = [step.key for step in self.commands]
        for key in (*played.BEFORE, *played.AFTER):
            self.assertEqual(keys.count(key), 1, key)

    def test_each_substitution_is_used_and_leaves_no_placeholder(self):
        texts = [step.text for step in self.commands]
        for old, _, reason in played.SUBSTITUTED:
            self.assertTrue(any(old in text for text in texts), old)
            self.assertGreater(len(reason.split()), 2, old)
        for text in texts:
            left = r"your/|example/|registry\.|/opt/|\b(?<!\|)(?<!: )(?:IMAGE|FOLDER|NAME|MODEL)\b"
            self.assertEqual(re.findall(left, played.substituted(text)), [], text)

    def test_the_running_text_has_no_step_and_the_blocks_are_known(self):
        self.assertEqual([span for span in page.inline(played.TEXT) if STEPS.search(span)], [])
        self.assertEqual([step.key for step in self.steps if step.fragment], list(played.FRAGMENTS))

    def test_each_pod_has_a_name_of_its_own_and_is_deleted_before_the_uninstall(self):
        made = [line.split()[0] for step in self.commands for line in step.shown
                if re.fullmatch(r"pod/\S+ created", line)]
        self.assertEqual(len(made), len(set(made)), made)
        keys = [step.key for step in self.commands]
        deleted = keys.index("kubectl delete pod " + " ".join(name.removeprefix("pod/") for name in made))
        uninstall = next(i for i, key in enumerate(keys) if key.startswith("kubectl delete") and "-f " in key)
        self.assertLess(deleted, uninstall)

    def test_the_claim_runs_before_slots_are_switched_on_and_ends_after_the_slots(self):
        keys = [step.key for step in self.commands]
        order = [next(i for i, key in enumerate(keys) if key.startswith(begin)) for begin in (
            "kubectl wait --for=condition=Ready pod/fraction", "kubectl apply -f deploy/control/cluster.yaml",
            "kubectl wait --for=condition=Ready pod/by-name", "kubectl delete pod fraction")]
        self.assertEqual(order, sorted(order))


if __name__ == "__main__":
    unittest.main()
