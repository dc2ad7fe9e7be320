#pragma once

#include <string>

#include "adapter/nvml/prototypes.h"
#include "base/result.h"

namespace carve::nvml {

/// A vendor's library as one visible row; nothing outside adapter/<vendor> names it.
struct ProviderRow {
  const char* vendor;
  const char* management_library;
  const char* compute_library;
};
inline constexpr ProviderRow kProviders[] = {
    {"nvidia", "libnvidia-ml.so.1", "libcuda.so.1"},
};

/// The open library. Only the worker process has one. Never closed: the process ends instead.
struct Library {
  Api api;
  std::string nvml_file;  // where it was found, resolved
  std::string cuda_file;  // the driver's compute library beside it; empty when there is none
};

/// Opens the library: below `driver_root` (the folder itself and the usual library folders in it), or by the
/// loader's own search where that is empty; resolves what is there and initialises it.
///   errors  kUnavailable: no library, or it says that there is no driver
[[nodiscard]] Result<Library> open_library(const std::string& driver_root);

/// The driver's words for a return code.
[[nodiscard]] std::string describe(const Api& api, int status);

}  // namespace carve::nvml
