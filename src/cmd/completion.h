#pragma once

#include <string>
#include <vector>

namespace carve::cmd {

/// One command, for completion.
struct CompletionNode {
  std::string path;                // "run", "slice create"
  std::vector<std::string> words;  // sub-commands and flags
};

/// The completion script for "bash" or "zsh"; empty for other shells. After a command it completes the words of the
/// node with that path, and only of the nodes that are given here.
[[nodiscard]] std::string completion_script(const std::string& shell,
                                            const std::vector<CompletionNode>& nodes);

}  // namespace carve::cmd
