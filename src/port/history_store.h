#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// The files of a node's history. Used by one thread that writes and by others that read.
class HistoryStore {
 public:
  virtual ~HistoryStore() = default;
  /// The names of the files, sorted.
  [[nodiscard]] virtual Result<std::vector<std::string>> list() = 0;
  /// A whole file.
  [[nodiscard]] virtual Result<std::string> read(const std::string& name) = 0;
  /// Appends in one write, and creates the file if necessary. Not synced: a power failure may lose the last minute.
  virtual Result<void> append(const std::string& name, const std::string& bytes) = 0;
  virtual Result<void> remove(const std::string& name) = 0;
};

}  // namespace carve
