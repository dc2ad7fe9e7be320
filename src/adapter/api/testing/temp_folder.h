#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace carve::api {

/// A folder of a test's own for its socket, whose path has to be short: not below TMPDIR. Goes with the test.
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
  /// Empty where none could be made.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace carve::api
