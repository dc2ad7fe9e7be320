#pragma once

/// Marks a hook: a C function that the object exports under the name of the driver's function.
#define CARVE_EXPORT extern "C" __attribute__((visibility("default")))
