#pragma once

#include "sim/cuda/driver.h"

namespace carve::sim::cu {

/// Creates a context on the device: charges it to the card and opens its default stream. Does not make it current.
CUresult make_context(Device* device, unsigned flags, unsigned api_version, bool primary,
                      Context** out);
/// Waits for the context's work, then frees everything that it held. Its handles stay readable and report "destroyed".
void destroy_context(Context* context);

void push_current(Context* context);
void set_current(Context* context);

/// Frees all allocations of the context (memory.cc) and unloads its modules (module.cc).
void free_context_memory(Context* context);
void unload_context_modules(Context* context);

}  // namespace carve::sim::cu
