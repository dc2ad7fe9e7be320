#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace carve::api {

/// A temporary folder for a test's socket. Its path must be short, so it is in /tmp, not in TMPDIR. The destructor
/// removes the folder.
class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/carve-api-XXXXXX";
    if (::mkdtemp(name) != nullptr) path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  /// Empty when the folder could not be created.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace carve::api
