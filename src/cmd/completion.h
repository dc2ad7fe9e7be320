#pragma once

#include <string>
#include <vector>

namespace carve::cmd {

/// One command of the tree that completion knows.
struct CompletionNode {
  std::string path;                // "run", "slice create"
  std::vector<std::string> words;  // sub-commands and flags
};

/// A script for the shell: "bash" or "zsh"; empty for others.
[[nodiscard]] std::string completion_script(const std::string& shell,
                                            const std::vector<CompletionNode>& nodes);

}  // namespace carve::cmd
