#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The dynamic loader's cache, /etc/ld.so.cache: which file a library's name stands for. `ldconfig` writes it, the
// loader and `ldconfig -p` read it. Programs that look for the driver by `ldconfig -p` find nothing that is not in it.
namespace carve::codec {

struct LoaderEntry {
  std::string name;  // libcuda.so.1
  std::string path;  // /usr/lib/x86_64-linux-gnu/libcuda.so.1
  friend bool operator==(const LoaderEntry&, const LoaderEntry&) = default;
};

/// The cache's 64-bit libraries of this machine's architecture, in the cache's order.
///   errors  kInvalidArgument: no such cache, or one that points outside itself
[[nodiscard]] Result<std::vector<LoaderEntry>> loader_entries(std::string_view cache);

/// The cache with these libraries in it, in the loader's order. A library takes the place of every entry of the same
/// name and architecture, so that the driver's library is found and not another one of an image. The order and the
/// hardware capabilities of all other entries stay. The result has the new format only, which every glibc since 2.2
/// reads.
///   in      cache: the file's bytes; empty: there is no cache yet
///   errors  as loader_entries(); kInvalidArgument: a name or path with a NUL byte in it, or none
///   cost    one pass over the cache and one over the result
///   source  glibc sysdeps/generic/dl-cache.h (layout), elf/dl-cache.c (order, look-up), elf/cache.c (ldconfig)
[[nodiscard]] Result<std::string> with_libraries(std::string_view cache, const std::vector<LoaderEntry>& libraries);

/// Less than 0, 0, more than 0: how the loader orders two names. Digits compare as numbers.
[[nodiscard]] int compare_library_names(std::string_view a, std::string_view b);

}  // namespace carve::codec
