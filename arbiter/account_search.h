#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "arbiter/page_files.h"

namespace carve::arbiter {

struct FoundAccount {
  AccountFile file;
  std::set<std::int32_t> processes;  // those that map it for writing, so not NVML's
};

/// Searches the mappings of all processes for account pages with these inodes, which neither an arbiter nor an agent
/// has any more. Any process can create a memfd with the name of a page, so only the inode identifies it. Leaves out a
/// process that cannot be read within half a second: its user may block it in the kernel.
///   cost  reads the mappings of every process
std::map<std::uint64_t, FoundAccount> find_accounts(const std::set<std::uint64_t>& inodes);

}  // namespace carve::arbiter
