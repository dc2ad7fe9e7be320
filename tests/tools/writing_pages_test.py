#!/usr/bin/env python3
"""Follows docs/writing_a_dialect.md and docs/writing_a_policy.md on copies of the files that they change: the code of the
pages compiles, and the new dialect and the new policy do what the pages say.

  writing_pages_test.py ROOT COMPILER LIBRARY…      the libraries of the ordinary build, which provide everything else
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, COMPILER, LIBRARIES = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]

DIALECT_MAIN = r"""
#include <cstdio>
#include "codec/dialects/dialect.h"

int main() {
  using namespace carve::codec;
  const auto meaning = [](std::map<std::string, std::string> limits) {
    PodAsk pod;
    pod.containers.push_back({"c", ContainerKind::kMain, {}, std::move(limits)});
    const auto parts = requests_of(pod, {});
    if (!parts) return parts.error().what;
    return parts->empty() ? std::string("nothing") : parts->front().request.dialect + ": " + to_human(parts->front().request);
  };
  for (const auto& limits : std::vector<std::map<std::string, std::string>>{
           {{"gpu.example.com/memory", "4k"}, {"gpu.example.com/cards", "2"}},
           {{"gpu.example.com/cards", "3"}},
           {{"gpu.example.com/memory", "much"}},
           {{"gpu.example.com/memory", "4096"}, {"nvidia.com/gpu", "1"}}})
    std::puts(meaning(limits).c_str());
}
"""

POLICY_MAIN = r"""
#include <cstdio>
#include "core/ledger/ledger.h"
#include "core/policy/policy.h"

int main() {
  using namespace carve;
  Ledger ledger;
  for (const auto& [uuid, gib] : {std::pair{"GPU-a", 24}, {"GPU-b", 16}, {"GPU-c", 32}}) {
    Card card;
    card.id = CardId(uuid);
    card.memory = Bytes::gib(static_cast<std::uint64_t>(gib));
    if (!ledger.put_card(card)) return 1;
  }
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(4));
  request.compute = CoreShare(30);
  const auto policy = policy_named("small-first");
  if (!policy) return 2;
  const auto placed = place(ledger, {}, request, **policy);
  std::puts(placed ? placed->front().card.str().c_str() : placed.error().what.c_str());
  std::puts(policy_named("large-first").error().what.c_str());
}
"""


def blocks(page):
    """The C++ blocks of the page, in order, without the indent of their list item."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [re.sub(r"^   ", "", body, flags=re.M) for body in re.findall(r"^   ```cpp\n(.*?)^   ```", text, re.M | re.S)]


class Tree:
    """The files that a page changes, before all others on the include path."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def change(self, path, *steps):
        """Copies the file and inserts each text before or in place of the only match of a pattern."""
        text = (ROOT / "src" / path).read_text("utf-8")
        for pattern, new in steps:
            text, count = re.subn(pattern, lambda _, new=new: new, text, flags=re.M)
            assert count == 1, f"{path}: {pattern} occurs {count} times"
        self.write(path, text)

    def write(self, path, text):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, "utf-8")

    def output_of(self, main, *sources):
        """Compiles `main` with these sources, which replace those in the libraries, and returns the lines that it prints."""
        self.write("main.cc", main)
        program = self.folder / "program"
        subprocess.run([COMPILER, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{self.folder}", f"-I{ROOT}/src",
                        f"-I{ROOT}", "-o", program, *(self.folder / one for one in ("main.cc", *sources)),
                        # The first definition counts: that of a source above.
                        "-Wl,--allow-multiple-definition", *LIBRARIES, *LIBRARIES], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Tree(folder.name)

    def test_the_page_about_dialects(self):
        source, declaration, names, row = blocks("writing_a_dialect.md")
        self.tree.write("codec/dialects/example.cc", source)
        first = "/// All dialects there are."
        self.tree.change("codec/dialects/dialect.h", (re.escape(first), declaration + "\n" + first))
        nvidia = "constexpr std::array kNvidia"
        self.tree.change("codec/dialects/dialect_table.cc", (re.escape(nvidia), names + nvidia),
                         (r"std::array kDialects = \{", "std::array kDialects = {\n" + row))
        self.assertEqual(self.tree.output_of(DIALECT_MAIN, "codec/dialects/example.cc", "codec/dialects/dialect_table.cc"), [
            "example: 2 cards × (3.9 GiB, besteffort)",
            "example: 3 whole cards",
            'container c: gpu.example.com/memory: "much" is not a whole number; legal: 1 to 4194304 MiB',
            "container c: nvidia.com/gpu together with gpu.example.com/memory: one container must use one dialect"])

    def test_the_page_about_policies(self):
        score, declaration, row = blocks("writing_a_policy.md")
        spread = "[[nodiscard]] std::int64_t score_spread"
        self.tree.change("core/policy/policy.h", (re.escape(spread), declaration + spread),
                         (r"std::array<PolicyRow, 2> kPolicies = \{\{", "std::array<PolicyRow, 3> kPolicies = {{\n" + row))
        named = "Result<const PolicyRow*> policy_named"
        self.tree.change("core/policy/policy.cc", (re.escape(named), score + "\n" + named))
        self.assertEqual(self.tree.output_of(POLICY_MAIN, "core/policy/policy.cc"), [
            "GPU-b", 'policy: "large-first" is unknown; legal: small-first, binpack, spread'])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
