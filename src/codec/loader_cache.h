#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The dynamic loader's cache, /etc/ld.so.cache: it maps a library's name to a file. `ldconfig` writes it; the loader
// and `ldconfig -p` read it. Programs that find the driver by `ldconfig -p` find only libraries that are in it.
namespace carve::codec {

struct LoaderEntry {
  std::string name;  // libcuda.so.1
  std::string path;  // /usr/lib/x86_64-linux-gnu/libcuda.so.1
  friend bool operator==(const LoaderEntry&, const LoaderEntry&) = default;
};

/// The cache's 64-bit libraries of this machine's architecture, in the cache's order.
///   errors  kInvalidArgument: not a loader cache, or an offset points outside of it
[[nodiscard]] Result<std::vector<LoaderEntry>> loader_entries(std::string_view cache);

/// The cache with these libraries added, in the loader's order. A library replaces every entry of the same name and
/// architecture, so that the loader finds the driver's library instead of one of the image. The order and the hardware
/// capabilities of all other entries stay. The result has only the new format, which every glibc since 2.2 reads.
///   in      cache: the file's bytes; empty: there is no cache yet
///   errors  as loader_entries(); kInvalidArgument: a name or path is empty or has a NUL byte
///   cost    one pass over the cache and one over the result
///   source  glibc sysdeps/generic/dl-cache.h (layout), elf/dl-cache.c (order, look-up), elf/cache.c (ldconfig)
[[nodiscard]] Result<std::string> with_libraries(std::string_view cache, const std::vector<LoaderEntry>& libraries);

/// Compares two names in the loader's order: less than 0, 0, or greater than 0. Digits compare as numbers.
[[nodiscard]] int compare_library_names(std::string_view a, std::string_view b);

}  // namespace carve::codec
