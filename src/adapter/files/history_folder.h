#pragma once

#include <string>

#include "port/history_store.h"

namespace carve::files {

/// A folder that only root can read, one file per name.
class HistoryFolder final : public HistoryStore {
 public:
  explicit HistoryFolder(std::string folder) : folder_(std::move(folder)) {}
  [[nodiscard]] Result<std::vector<std::string>> list() override;
  [[nodiscard]] Result<std::string> read(const std::string& name) override;
  Result<void> append(const std::string& name, const std::string& bytes) override;
  Result<void> remove(const std::string& name) override;

 private:
  std::string folder_;
};

}  // namespace carve::files
