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

/// The answer of a program kubectl_complete-carve to kubectl: the words that may stand in place of the last one of
/// `words`, one per line, then ":4" (no file names).
[[nodiscard]] std::string plugin_completions(const std::vector<CompletionNode>& nodes,
                                             const std::vector<std::string>& words);

}  // namespace carve::cmd
