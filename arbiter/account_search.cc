#include "arbiter/account_search.h"

#include <fcntl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

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
  std::vector<Mapping> seen;
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen(path.c_str(), "re"), std::fclose);
  char line[512];
  while (maps && std::fgets(line, sizeof line, maps.get())) {
    *any = true;
    if (!std::strstr(line, kAccountMapping)) continue;
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

AccountSearch::AccountSearch(std::set<std::uint64_t> inodes) : search_(std::make_shared<Search>(std::move(inodes))) {
  if (search_->inodes.empty()) {
    const MutexLock lock(search_->mutex);
    search_->running = false;
    return;
  }
  thread_ = Thread("arbiter-search", [search = search_] { search->run(); });
}

AccountSearch::~AccountSearch() {
  {
    const MutexLock lock(search_->mutex);
    search_->given_up = true;
    if (!search_->running) return;
  }
  static auto& left = *new std::vector<Thread>;  // never joined: they may wait in the kernel
  left.push_back(std::move(thread_));
}

std::map<std::uint64_t, AccountSearch::Found> AccountSearch::wait(std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  MutexLock lock(search_->mutex);
  while (search_->running && search_->ended.wait_until(lock, end) == std::cv_status::no_timeout) {
  }
  search_->given_up = true;
  return std::exchange(search_->found, {});
}

void AccountSearch::Search::run() {
  for (const std::string& process : names_in("/proc")) {
    if (process[0] < '1' || process[0] > '9') continue;
    {
      const MutexLock lock(mutex);
      if (given_up) break;
    }
    look_into(std::atoi(process.c_str()));
  }
  const MutexLock lock(mutex);
  running = false;
  ended.notify_all();
}

void AccountSearch::Search::look_into(std::int32_t pid) {
  for (const Mapping& mapping : mappings_of(pid)) {
    if (!inodes.contains(mapping.inode)) continue;
    Fd fd(::open(fmt::format("/proc/{}/map_files/{}", mapping.thread, mapping.range).c_str(), O_RDWR | O_CLOEXEC));
    auto mapped = fd ? PageFiles::map_account(std::move(fd)) : fail(Code::kUnavailable, "gone");
    if (!mapped || mapped->inode != mapping.inode) continue;
    const MutexLock lock(mutex);
    Found& page = found[mapping.inode];
    if (!page.file.page.get()) page.file = std::move(*mapped);
    if (mapping.writable) page.processes.insert(pid);
  }
}

}  // namespace carve::arbiter
