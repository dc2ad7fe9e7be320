#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

enum class FileKind : std::uint8_t { kAbsent, kFile, kFolder, kSocket, kCharDevice, kOther };

struct FileFacts {
  FileKind kind = FileKind::kAbsent;  // links are followed
  unsigned major = 0;                 // of a device node
  unsigned minor = 0;
};

/// A host for a read-only observer: `carve doctor`. Paths are the host's.
class HostFiles {
 public:
  virtual ~HostFiles() = default;
  ///   errors  kNotFound; kPermissionDenied and others: it could not be read
  [[nodiscard]] virtual Result<std::string> read(const std::string& path) const = 0;
  /// Sorted names. Errors as read().
  [[nodiscard]] virtual Result<std::vector<std::string>> list(const std::string& folder) const = 0;
  ///   errors  kPermissionDenied and others: it could not be read
  [[nodiscard]] virtual Result<FileFacts> facts(const std::string& path) const = 0;
};

}  // namespace carve
