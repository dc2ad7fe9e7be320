#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "adapter/cdi/driver_files.h"
#include "port/slice_devices.h"

namespace carve {

inline constexpr char kCdiKind[] = "carve.elasticgpu.io/slice";

struct CdiOptions {
  std::string folder;     // /var/run/cdi
  std::string host_root;  // where the host's files are seen, when they are not at their own paths
  std::vector<cdi::DriverUse> uses;  // kinds of driver libraries by policy, besides those for compute and utility
  std::string marks = {};  // folder of whole cards' marks, `<marks>/<id>`; each lives as long as its spec. Empty: none
};

/// Slices as CDI files, one each, in /var/run/cdi: `--device carve.elasticgpu.io/slice=<id>`. The version is
/// the lowest that covers the fields used, so that every runtime with CDI reads them.
///   source  CDI specification; a runtime watches the folder, so a file appears whole (temporary name that is
///           not *.json in the same folder, sync, rename)
class CdiFiles final : public SliceDevices {
 public:
  explicit CdiFiles(CdiOptions options) : options_(std::move(options)) {}
  explicit CdiFiles(std::string folder) : CdiFiles(CdiOptions{std::move(folder), {}, {}, {}}) {}
  /// Makes missing device nodes first, and reads back what it wrote.
  ///   errors  besides the system's: kDataLoss: the file does not hold what was written, and was removed again;
  ///           kFailedPrecondition: a device node is missing and may not be made
  Result<void> publish(const SliceDevice& device) override;
  Result<void> withdraw(const std::string& id) override;
  Result<std::vector<std::string>> list() override;
  /// The file's text (for tests and `carve slice create -o json`).
  [[nodiscard]] static std::string spec_of(const SliceDevice& device, const CdiOptions& options,
                                           const cdi::DriverInstallation& installed);
  /// Where the slice's file is.
  [[nodiscard]] std::string path_of(const std::string& id) const;

 private:
  /// The driver's other files, looked for once per driver.
  cdi::DriverInstallation installed(const SliceDevice& device);

  CdiOptions options_;
  std::mutex mutex_;
  cdi::DriverInstallation seen_;
  std::string seen_key_;  // which driver `seen_` is of
};

}  // namespace carve
