#pragma once

#include "port/host_files.h"

namespace carve::host {

/// Reads files at the given paths. In a container, call enter_host_root() first: it changes the root to the host's.
class HostFilesOnDisk final : public HostFiles {
 public:
  [[nodiscard]] Result<std::string> read(const std::string& path) const override;
  [[nodiscard]] Result<std::vector<std::string>> list(const std::string& folder) const override;
  [[nodiscard]] Result<FileFacts> facts(const std::string& path) const override;
};

}  // namespace carve::host
