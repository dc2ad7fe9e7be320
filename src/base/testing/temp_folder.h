#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace carve {

/// A folder for one test, which the destructor removes. It is in /tmp, not in TMPDIR, because the path of a socket must
/// be short.
class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/carve-test-XXXXXX";
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

}  // namespace carve
