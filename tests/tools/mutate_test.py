#!/usr/bin/env python3
"""tools/mutate must change only what a program does, draw the same changes for the same seed, and explain only changes
that it can make."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("mutate", str(ROOT / "tools/mutate"))
SPEC = importlib.util.spec_from_loader("mutate", LOADER)
mutate = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(mutate)


def become(text):
    """All mutants of this text."""
    return {text[:one.at] + one.new + text[one.end:] for site in mutate.changes_of("a.cc", text) for one in site}


class Changes(unittest.TestCase):
    def test_operators_are_changed(self):
        for text, wanted in {
            "a < b": {"a <= b", "a >= b"},
            "a >= b": {"a > b", "a < b"},
            "a == b": {"a != b"},
            "a && b": {"a || b"},
            "a * b / c": {"a / b / c", "a * b * c"},
            "a - b + c": {"a + b + c", "a - b - c"},
            "++a": {"--a"},
            "a += b": {"a -= b"},
            "!a": {"a"},
            "x = true": {"x = false"},
            "std::min(a, b)": {"std::max(a, b)"},
            "min_of(a, b)": {"max_of(a, b)"},
        }.items():
            with self.subTest(text):
                self.assertEqual(become(text), wanted)

    def test_a_choice_between_two_values_keeps_its_boundary(self):
        self.assertEqual(become("if (a.b > c) a.b = c;") - {"if (a.b > c) ;"}, {"if (a.b <= c) a.b = c;"})
        self.assertEqual(become("x = a < b ? a : b"), {"x = a >= b ? a : b"})
        self.assertEqual(become("x = a < b(c) ? b(c) : a"), {"x = a >= b(c) ? b(c) : a"})
        self.assertEqual(become("x = a < b ? a : c"), {"x = a <= b ? a : c", "x = a >= b ? a : c"})

    def test_small_numbers_change_by_one_and_large_ones_by_a_factor_of_two(self):
        self.assertEqual(become("a[7]"), {"a[8]", "a[6]"})
        self.assertEqual(become("0"), {"1"})
        self.assertEqual(become("1'000ULL"), {"2000ULL", "500ULL"})
        self.assertEqual(become("0x10u"), {"17u", "15u"})
        self.assertEqual(become("0x11u"), {"34u", "8u"})
        self.assertEqual(become("1.5"), set())

    def test_returned_conditions_become_constants(self):
        self.assertLessEqual({"return true;", "return false;"}, become("return a == b;"))
        self.assertLessEqual({"return true;", "return false;"}, become("return !a;"))
        self.assertEqual(become("return f(a == b);"), {"return f(a != b);"})
        self.assertEqual(become("return a;"), set())

    def test_statements_are_removed(self):
        body = "void f() { %s }"
        for statement in ("a = b;", "a.b[c] = d;", "a->b(c);", "std::sort(a, b);", "*a = b;"):
            with self.subTest(statement):
                self.assertIn(body % ";", become(body % statement))
        for statement in ("a.reserve(b);", "a.shrink_to_fit();", "int a = b;", "auto a = b;", "const T& a(b);", "T a{b};", "return a;", "a;", "using a::b;",
                          "std::vector<T> a(b);"):
            with self.subTest(statement):
                self.assertEqual(become(body % statement), set())
        self.assertIn("void f() { if (a) ; else ; }", {
            text.replace("c = d;", ";") for text in become("void f() { if (a) b(); else c = d; }")})
        self.assertEqual(become("struct A { A(); void f(); };"), set())

    def test_text_without_an_operator_or_an_effect_is_not_changed(self):
        for text in ("// a < b", "/* 1 + 2 */", 'x("a < 1")', "x('<')", 'R"(a < 1)"', "#if A < 1", "static_assert(a < 1);",
                     "std::array<T, 3> a", "template <class T, int kN = 3> class A", "T&& a", "T* a", "T& a",
                     "std::map<A, std::set<B, 2>> a", "operator<(A a)", "operator==(A a)", "a <=> b", "a.reserve(n + 1)",
                     "std::numeric_limits<int>::max()", "a->b", "std::uint64_t min_of(A a)", 'a + "text"', 'a += "text"'):
            with self.subTest(text):
                self.assertEqual(become(text), set())

    def test_a_change_is_shown_with_its_line(self):
        text = "int f() {\n  return a <\n         b;\n}\n"
        change = next(one for site in mutate.changes_of("a.cc", text) for one in site if one.new == "<=")
        self.assertEqual(change.line, 2)
        self.assertEqual(mutate.shown(text, change), ("return a <", "return a <="))


class Draws(unittest.TestCase):
    def test_the_same_seed_draws_the_same_changes_and_another_seed_others(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"lease/a.cc": "int a = 1 + 2;\n", "lease/a_test.cc": "int a = 3;\n", "lease/b.h": "int b = 4;\n",
                               "lease/testing/c.cc": "int c = 5;\n", "src/core/d.cc": "int d = 6 * 7;\n"}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            draw = lambda seed, *folders: mutate.drawn(seed, root, folders)
            self.assertEqual(draw(3, "lease", "core"), draw(3, "lease", "core"))
            self.assertEqual({one.path for one in draw(3, "lease", "core")}, {"lease/a.cc", "lease/b.h", "src/core/d.cc"})
            self.assertEqual(len(draw(3, "lease")), 4, "one change for each token")
            self.assertGreater(len({tuple(draw(seed, "lease", "core")) for seed in range(5)}), 1)


class SameCode(unittest.TestCase):
    """A change is compared as machine code: with a compiler, without the tests' program."""

    def same(self, text, old, new, path="lease/a.cc"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            changed, original = root / "tree" / path, root / "original" / path
            user = root / "original/src/core/a.cc" if path.endswith(".h") else original
            for file in (changed, original, user):
                file.parent.mkdir(parents=True, exist_ok=True)
            user.write_text(f'#include "{path}"\n', encoding="utf-8")
            original.write_text(text, encoding="utf-8")
            changed.write_text(text.replace(old, new), encoding="utf-8")
            program = mutate.Program.__new__(mutate.Program)
            program.tree, program.build, program.users = root / "original", root, {path: ["a.o"]}
            program.compile = {"a.o": (str(user), ["g++", *mutate.FLAGS.split(), "-MD", "-MT", "a.o", "-MF", "a.d"])}
            return program.same_code(mutate.Change(path, 1, 0, 0, ""), text, changed, root)

    def test_only_a_change_without_an_effect_compiles_to_the_same_code(self):
        text = "unsigned f(unsigned a) { return a > 0; }"
        self.assertTrue(self.same(text, "a > 0", "a >= 1"))
        self.assertFalse(self.same(text, "a > 0", "a > 1"))
        self.assertFalse(self.same(text, "return", "retrun"), "it does not compile")

    def test_a_header_is_compared_by_the_code_of_the_files_that_include_it(self):
        text = "inline int g(int a) { return a * 2; }\nint f(int a) { return g(a); }\n"
        self.assertTrue(self.same(text, "a * 2", "a + a", "lease/a.h"))
        self.assertFalse(self.same(text, "a * 2", "a * 3", "lease/a.h"))


class TheTree(unittest.TestCase):
    def test_every_explained_change_is_possible(self):
        self.assertEqual(mutate.stale(mutate.read_explained()), [])

    def test_the_list_of_changes_is_the_same_for_the_same_seed(self):
        listed = [subprocess.run([sys.executable, str(ROOT / "tools/mutate"), "--list", "--seed", "7", "--count", "5"],
                                 capture_output=True, text=True, check=True).stdout for _ in range(2)]
        self.assertEqual(len(listed[0].splitlines()), 6)
        self.assertEqual(*listed)


if __name__ == "__main__":
    unittest.main()
