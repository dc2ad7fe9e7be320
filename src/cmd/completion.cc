#include "cmd/completion.h"

#include <set>

namespace carve::cmd {
namespace {

constexpr char kHead[] = R"(# carve: words after `carve`, for bash and (through bashcompinit) zsh
_carve() {
  local cur="${COMP_WORDS[COMP_CWORD]}" path="" word i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${COMP_WORDS[i]}"
    case "$word" in
      --) return 0 ;;
      -*) ;;
      )";

constexpr char kMiddle[] = R"()
        path="${path:+$path }$word" ;;
    esac
  done
  case "$path" in
)";

constexpr char kTail[] = R"(  esac
}
complete -o default -F _carve carve
)";

/// The name of every command and sub-command, as a pattern of `case`: "create|run|slice".
std::string names_of(const std::vector<CompletionNode>& nodes) {
  std::set<std::string> names;
  for (const auto& node : nodes) {
    if (!node.path.empty()) names.insert(node.path.substr(node.path.rfind(' ') + 1));
  }
  std::string pattern;
  for (const auto& name : names) pattern += (pattern.empty() ? "" : "|") + name;
  return pattern;
}

}  // namespace

std::string plugin_completions(const std::vector<CompletionNode>& nodes, const std::vector<std::string>& words) {
  const std::string last = words.empty() ? std::string() : words.back();
  std::string path;
  for (std::size_t at = 0; at + 1 < words.size(); ++at) {
    const std::string longer = path.empty() ? words[at] : path + " " + words[at];
    for (const auto& node : nodes) {
      if (node.path == longer) path = longer;
    }
  }
  std::string out;
  for (const auto& node : nodes) {
    if (node.path != path) continue;
    for (const auto& word : node.words) {
      if (word.starts_with(last)) out += word + "\n";
    }
  }
  return out + ":4\n";
}

std::string completion_script(const std::string& shell, const std::vector<CompletionNode>& nodes) {
  if (shell != "bash" && shell != "zsh") return {};
  std::string script;
  if (shell == "zsh") script += "autoload -U +X bashcompinit && bashcompinit\n";
  script += kHead + names_of(nodes) + kMiddle;
  for (const auto& node : nodes) {
    script += "    \"" + node.path + "\") COMPREPLY=($(compgen -W \"";
    for (std::size_t i = 0; i < node.words.size(); ++i) script += (i == 0 ? "" : " ") + node.words[i];
    script += "\" -- \"$cur\")) ;;\n";
  }
  return script + kTail;
}

}  // namespace carve::cmd
