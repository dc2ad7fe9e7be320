#pragma once

#include <string>

#include "port/slice_devices.h"

namespace carve {

inline constexpr char kCdiKind[] = "carve.elasticgpu.io/slice";

/// Slices as CDI files, one each, in /var/run/cdi: `--device carve.elasticgpu.io/slice=<id>`. The version is
/// the lowest that covers the fields used, so that every runtime with CDI reads them.
///   source  CDI specification; a runtime watches the folder, so a file appears whole (temporary name that is
///           not *.json in the same folder, sync, rename)
class CdiFiles final : public SliceDevices {
 public:
  /// `host_root`: where the host's files are seen, when they are not at their own paths; a spec names the host's.
  explicit CdiFiles(std::string folder, std::string host_root = {})
      : folder_(std::move(folder)), host_root_(std::move(host_root)) {}
  Result<void> publish(const SliceDevice& device) override;
  Result<void> withdraw(const std::string& id) override;
  Result<std::vector<std::string>> list() override;
  /// The file's text (for tests and `carve slice create -o json`).
  [[nodiscard]] static std::string spec_of(const SliceDevice& device, const std::string& host_root = {});

 private:
  [[nodiscard]] std::string path_of(const std::string& id) const;
  std::string folder_;
  std::string host_root_;
};

}  // namespace carve
