#pragma once

#include "sim/cuda/driver.h"

namespace carve::sim::cu {

/// Makes a context on the device: charges it to the card, opens its default stream. Does not make
/// it current.
CUresult make_context(Device* device, unsigned flags, unsigned api_version, bool primary,
                      Context** out);
/// Waits for its work, then gives back all that it held. Handles to it stay readable and say
/// "destroyed".
void destroy_context(Context* context);

void push_current(Context* context);
void set_current(Context* context);

/// Frees all allocations that belong to the context (memory.cc), unloads its modules (module.cc).
void free_context_memory(Context* context);
void unload_context_modules(Context* context);

}  // namespace carve::sim::cu
