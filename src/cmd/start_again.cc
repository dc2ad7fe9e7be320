#include "cmd/start_again.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "adapter/process/text_file.h"
#include "cmd/options.h"

namespace carve::cmd {

Result<std::vector<std::string>> own_arguments() {
  CARVE_TRY(const auto words, process::read_text("/proc/self/cmdline"));
  std::vector<std::string> args;
  for (std::size_t at = 0; at < words.size();) {
    const auto end = std::min(words.find('\0', at), words.size());
    args.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  if (!args.empty()) args.erase(args.begin());
  return args;
}

int start_again() {
  sigset_t pending;
  ::sigpending(&pending);
  if (::sigismember(&pending, SIGTERM) == 1 || ::sigismember(&pending, SIGINT) == 1) return kExitOk;
  const auto words = own_arguments();
  if (!words) return report(words.error());
  const std::string program = own_path();
  std::vector<std::string> args = *words;
  args.insert(args.begin(), program);
  std::vector<char*> list;
  for (auto& arg : args) list.push_back(arg.data());
  list.push_back(nullptr);
  ::execv(program.c_str(), list.data());
  return report(errno_error(errno, "execute " + program));
}

}  // namespace carve::cmd
