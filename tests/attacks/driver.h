#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// The few driver entry points an attack needs, found by whatever way the attack is about.
namespace carve::attacks {

using Find = std::function<void*(const char*)>;

/// Takes memory on device 0 in `step` bytes until `target` is held or the driver says no.
struct Taken {
  std::uint64_t bytes = 0;
  int refused_with = 0;  // the CUresult that ended it, 0 when the target was reached
  bool reached_driver = false;
};

/// Initialises the driver found by `find` and takes memory; keeps all of it.
Taken take_memory(const Find& find, std::uint64_t target, std::uint64_t step);

/// Loads a module with `bytes` of global variables on device 0: the driver takes them at loading. Keeps all of it.
Taken take_globals(const Find& find, std::uint64_t bytes);

/// Takes memory on device 0 by handles, without making a context; keeps all of it.
Taken take_without_context(const Find& find, std::uint64_t target, std::uint64_t step);

/// Takes `bytes` in one piece in the current context, and gives them back after so many milliseconds. What it got.
std::uint64_t burst_of_memory(const Find& find, std::uint64_t bytes, unsigned milliseconds);

/// What the driver, or who stands before it, says is free in the current context; 0 when it does not say.
std::uint64_t free_memory(const Find& find);

/// Launches `launches` kernels of our own sample module on device 0 without waiting for them.
/// Returns the CUresult that ended it, 0 when all were launched.
int launch_kernels(const Find& find, unsigned launches);

/// Keeps device 0 busy with kernels of 500 us for so many milliseconds of this process' life, `queued` at a time.
/// Returns the CUresult that ended it, 0 when the time was over.
int compute_for(const Find& find, std::uint64_t milliseconds, unsigned busy_percent, int queued = 16);

/// Finds by dlsym on `handle`.
Find in_handle(void* handle);

/// Finds through cuGetProcAddress_v2 of `handle`, everything but that name itself.
Find by_get_proc_address(void* handle);

}  // namespace carve::attacks
