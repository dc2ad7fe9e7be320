#include "cmd/completion.h"

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
      up|down|run|slice|inspect|top|explain|doctor|version|completion|create|delete|list|agent|arbiter|control)
        path="${path:+$path }$word" ;;
    esac
  done
  case "$path" in
)";

constexpr char kTail[] = R"(  esac
}
complete -o default -F _carve carve
)";

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CompletionNode>& nodes) {
  if (shell != "bash" && shell != "zsh") return {};
  std::string script;
  if (shell == "zsh") script += "autoload -U +X bashcompinit && bashcompinit\n";
  script += kHead;
  for (const auto& node : nodes) {
    script += "    \"" + node.path + "\") COMPREPLY=($(compgen -W \"";
    for (std::size_t i = 0; i < node.words.size(); ++i) script += (i == 0 ? "" : " ") + node.words[i];
    script += "\" -- \"$cur\")) ;;\n";
  }
  return script + kTail;
}

}  // namespace carve::cmd
