#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "arbiter/page_files.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace carve::arbiter {

/// Searches the mappings of all processes for account pages that neither an arbiter nor an agent has any more. To read
/// the mappings of a process may take as long as its user chooses, so a thread does it.
class AccountSearch {
 public:
  struct Found {
    AccountFile file;
    std::set<std::int32_t> processes;  // those that map it for writing, so not NVML's
  };
  /// Starts the search for pages with these inodes. Any process can create a memfd with the name of a page, so only the
  /// inode identifies it.
  explicit AccountSearch(std::set<std::uint64_t> inodes);
  AccountSearch(const AccountSearch&) = delete;
  AccountSearch& operator=(const AccountSearch&) = delete;
  /// A search that has not ended is left behind: only the process that it waits for can end it.
  ~AccountSearch();
  /// What was found when the search has ended or the time is over. Call it once.
  std::map<std::uint64_t, Found> wait(std::chrono::milliseconds most);

 private:
  struct Search {
    const std::set<std::uint64_t> inodes;
    Mutex mutex;
    Condition ended;
    bool running GUARDED_BY(mutex) = true;
    bool given_up GUARDED_BY(mutex) = false;
    std::map<std::uint64_t, Found> found GUARDED_BY(mutex);

    explicit Search(std::set<std::uint64_t> wanted) : inodes(std::move(wanted)) {}
    void run() EXCLUDES(mutex);
    void look_into(std::int32_t pid) EXCLUDES(mutex);
  };
  std::shared_ptr<Search> search_;
  Thread thread_;
};

}  // namespace carve::arbiter
