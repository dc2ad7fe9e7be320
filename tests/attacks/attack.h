#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "abi/page.h"
#include "tests/attacks/driver.h"

namespace carve::attacks {

struct Options {
  std::string self;                           // this program's path, to run it again in another way
  std::uint64_t bytes = 2ULL << 30;           // bytes to allocate
  std::uint64_t step = 64ULL << 20;           // bytes per allocation
  std::uint64_t hold_ms = 1500;               // how long to keep the memory
  unsigned busy = 100;                        // percent of the time in which to compute
  unsigned processes = 1;                     // number of processes, of the compute attacks
};

struct Attack {
  const char* name;
  int (*run)(const Options&);
};

/// All attacks, one row each: ways to reach the driver, and manipulations of the attacker's own pages.
std::span<const Attack> attacks();

/// Prints the line of JSON, keeps the memory for `hold_ms`, and returns the exit status 0.
int report_and_hold(const char* name, const Taken& taken, const Options& options, const std::string& note = "");

/// Prints why the attack cannot be carried out here; returns the exit status 3.
int precondition_missing(const char* name, const std::string& why);

/// The account pages that the library has mapped into this process.
std::vector<abi::AccountPage*> mapped_accounts();

/// The descriptors that the slice's socket returns to any process inside: grant, account, grant, account, …
std::vector<int> ask_for_pages();

// Attacks that have their own files.
int module_globals(const Options&);
int module_globals_room(const Options&);
int no_context_memory(const Options&);
int many_globals(const Options&);
int memory_bursts(const Options&);
int registered_compute(const Options&);
int queued_compute(const Options&);
int compute_lied(const Options&);
int compute_pretended(const Options&);
int pages_truncated(const Options&);
int pages_locked(const Options&);
int pages_noise(const Options&);
int pages_lied(const Options&);
int grant_written(const Options&);
int stopped_in_lease(const Options&);
int many_processes(const Options&);
int open_capture(const Options&);
int changing_block(const Options&);
int racing_capture(const Options&);
int other_card(const Options&);
int second_hello(const Options&);
int detached_context(const Options&);
int imported_handles(const Options&);
int destroyed_pool(const Options&);
int childs_inheritance(const Options&);
int destroyed_contexts(const Options&);
int exec_again(const Options&);
int after_exec(const Options&);

}  // namespace carve::attacks
