#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// The few driver entry points that an attack needs. `Find` finds them in the way that the attack uses.
namespace carve::attacks {

using Find = std::function<void*(const char*)>;

/// The result of an attack's allocations.
struct Taken {
  std::uint64_t bytes = 0;
  int refused_with = 0;  // the CUresult of the refusal; 0 when the target was reached
  bool reached_driver = false;
};

/// Initialises the driver found by `find` and allocates memory on device 0 in pieces of `step` bytes until `target` is
/// held or the driver refuses. Keeps all of it.
Taken take_memory(const Find& find, std::uint64_t target, std::uint64_t step);

/// Loads a module with `bytes` of global variables on device 0. The driver allocates them at the load. Keeps all of it.
Taken take_globals(const Find& find, std::uint64_t bytes);

/// Allocates memory on device 0 with cuMemCreate, without a context. Keeps all of it.
Taken take_without_context(const Find& find, std::uint64_t target, std::uint64_t step);

/// Allocates `bytes` in one piece in the current context and frees them after this time. Returns the bytes granted.
std::uint64_t burst_of_memory(const Find& find, std::uint64_t bytes, unsigned milliseconds);

/// The free memory of the current context as the driver, or the library in front of it, reports it; 0 on an error.
std::uint64_t free_memory(const Find& find);

/// Launches `launches` kernels of our own sample module on device 0 without waiting for them.
/// Returns the CUresult of the first failure, 0 when all were launched.
int launch_kernels(const Find& find, unsigned launches);

/// Keeps device 0 busy with kernels of 500 us for this many milliseconds, `queued` kernels at a time.
/// Returns the CUresult of the first failure, 0 when the time has passed.
int compute_for(const Find& find, std::uint64_t milliseconds, unsigned busy_percent, int queued = 16);

/// Finds functions with dlsym on `handle`.
Find in_handle(void* handle);

/// Finds functions through cuGetProcAddress_v2 of `handle`.
Find by_get_proc_address(void* handle);

}  // namespace carve::attacks
