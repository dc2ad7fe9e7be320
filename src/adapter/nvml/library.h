#pragma once

#include <string>

#include "adapter/nvml/prototypes.h"
#include "base/result.h"

namespace carve::nvml {

/// The libraries of a vendor. Nothing outside adapter/<vendor> names them.
struct ProviderRow {
  const char* vendor;
  const char* management_library;
  const char* compute_library;
};
inline constexpr ProviderRow kProviders[] = {
    {"nvidia", "libnvidia-ml.so.1", "libcuda.so.1"},
};

/// The open library. Only the worker process has one. It is never closed; the process ends instead.
struct Library {
  Api api;
  std::string nvml_file;  // its canonical path
  std::string cuda_file;  // the driver's compute library in the same folder; empty: there is none
};

/// Opens the library, resolves its symbols and initialises it. Searches `driver_root` itself and the usual library
/// folders below it; with an empty `driver_root`, the loader's search path.
///   errors  kUnavailable: no library, or it reports that there is no driver
[[nodiscard]] Result<Library> open_library(const std::string& driver_root);

/// The driver's text for a return code.
[[nodiscard]] std::string describe(const Api& api, int status);

}  // namespace carve::nvml
