#pragma once

/// Marks a hook: a C function that the object exports under the driver's name for it.
#define CARVE_EXPORT extern "C" __attribute__((visibility("default")))
