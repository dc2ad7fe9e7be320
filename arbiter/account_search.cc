#include "arbiter/account_search.h"

#include <fcntl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/fd.h"
#include "base/timed_calls.h"

namespace carve::arbiter {
namespace {

struct Mapping {
  std::string range;  // as /proc spells it
  bool writable;
  std::int32_t thread;  // its /proc entry shows the mapping
  std::uint64_t inode;
};

/// The mappings of account pages in one thread's list. `any` is set if the thread shows memory: a thread that has ended
/// and a kernel thread do not.
std::vector<Mapping> mappings_in(const std::string& path, std::int32_t thread, bool* any) {
  const std::string account = std::string("/memfd:") + kAccountName;
  std::vector<Mapping> seen;
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen(path.c_str(), "re"), std::fclose);
  char line[512];
  while (maps && std::fgets(line, sizeof line, maps.get())) {
    *any = true;
    if (!std::strstr(line, account.c_str())) continue;
    char range[64] = "";
    char rights[8] = "";
    unsigned long long offset = 0;
    unsigned long long inode = 0;
    if (std::sscanf(line, "%63s %7s %llx %*s %llu", range, rights, &offset, &inode) != 4 || offset != 0) continue;
    seen.push_back({range, std::strncmp(rights, "rw-s", 4) == 0, thread, inode});
  }
  return seen;
}

std::vector<Mapping> mappings_of(std::int32_t pid) {
  bool any = false;
  auto seen = mappings_in(fmt::format("/proc/{}/maps", pid), pid, &any);
  if (any) return seen;
  // The first thread has ended and shows no memory any more, but other threads may use that memory.
  for (const std::string& name : names_in(fmt::format("/proc/{}/task", pid))) {
    const std::int32_t thread = std::atoi(name.c_str());
    seen = mappings_in(fmt::format("/proc/{}/task/{}/maps", pid, thread), thread, &any);
    if (any) break;
  }
  return seen;
}

}  // namespace

std::map<std::uint64_t, FoundAccount> find_accounts(const std::set<std::uint64_t>& inodes) {
  constexpr std::chrono::milliseconds kPatience{500};
  struct Opened {
    std::uint64_t inode;
    bool writable;
    Fd fd;
  };
  std::map<std::uint64_t, FoundAccount> found;
  if (inodes.empty()) return found;
  TimedCalls calls(ThreadName("arbiter-search"), kPatience);
  for (const std::string& process : names_in("/proc")) {
    if (process[0] < '1' || process[0] > '9') continue;
    const std::int32_t pid = std::atoi(process.c_str());
    const auto opened = std::make_shared<std::vector<Opened>>();
    const bool read = calls.make(pid, [inodes, pid, opened] {
      for (const Mapping& mapping : mappings_of(pid)) {
        if (!inodes.contains(mapping.inode)) continue;
        const std::string path = fmt::format("/proc/{}/map_files/{}", mapping.thread, mapping.range);
        opened->push_back({mapping.inode, mapping.writable, Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC))});
      }
    });
    for (std::size_t i = 0; read && i < opened->size(); ++i) {
      Opened& one = (*opened)[i];
      auto mapped = PageFiles::map_account(std::move(one.fd));
      if (!mapped || mapped->inode != one.inode) continue;
      FoundAccount& page = found[one.inode];
      if (!page.file.page.get()) page.file = std::move(*mapped);
      if (one.writable) page.processes.insert(pid);
    }
  }
  return found;
}

}  // namespace carve::arbiter
