#!/usr/bin/env python3
"""Documents must state the number of attacks in the attack table. Whether each attack came out as a document says is
compared where the attacks run (tests/attacks/attack_table.py). The check of the node's health is tested here."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "attacks"))
import attack_table  # noqa: E402


class Counts(unittest.TestCase):
    def test_the_parts_are_all_attacks_once(self):
        names = list(attack_table.ATTACKS)
        parts = [names[part - 1::4] for part in range(1, 5)]
        self.assertEqual(sorted(sum(parts, [])), sorted(names))
        self.assertEqual(attack_table.part_of(["--part", "2/4"]), (2, 4))
        for wrong in ("0/4", "5/4", "1", ""):
            with self.assertRaises(SystemExit):
                attack_table.part_of(["--part", wrong])

    def test_every_document_states_the_number_of_the_table(self):
        texts = attack_table.documents()
        self.assertGreater(len(texts), 10)
        must = sum(wanted == "held" for wanted in attack_table.ATTACKS.values())
        for name, attacks, held, caught in attack_table.claims(texts):
            self.assertEqual(attacks, len(attack_table.ATTACKS), name)
            if held is not None:
                self.assertEqual(held + caught, attacks, name)
                self.assertGreaterEqual(held, must, name)

    def test_numbers_are_found_anywhere_in_a_text(self):
        found = attack_table.claims({"a": "none", "b": "| no; 20 attacks: 16 held, 4 caught | 7 attacks.",
                                     "c": "1 attacks"})
        self.assertEqual(found, [("b", 20, 16, 4), ("b", 7, None, None), ("c", 1, None, None)])

    def test_security_md_states_what_the_table_requires_of_each_attack(self):
        self.assertEqual(set(attack_table.WORDS), set(attack_table.ATTACKS))
        lines = attack_table.documents()["SECURITY.md"].splitlines()
        first = lines.index(attack_table.promises()[0])
        last = lines.index("", first)
        self.assertEqual(lines[first:last], attack_table.promises(), "print it by attack_table.py --promises")

    def test_harm_to_the_node_is_noticed(self):
        class Node:
            """Two living processes (both this one), and the arbiter's state as the agent reports it."""
            pids, says = {"arbiter": os.getpid(), "agent": os.getpid()}, "ok"

            def pid_of(self, service):
                return self.pids[service]

            def view(self):
                return {"arbiter_state": self.says}
        table = attack_table.Table(Node())
        before = table.node()
        self.assertTrue(table.node_is_well(before))
        self.assertFalse(table.node_is_well((1, os.getpid())), "another arbiter")
        table.m.says = "stopped"
        self.assertFalse(table.node_is_well(before))


if __name__ == "__main__":
    unittest.main()
