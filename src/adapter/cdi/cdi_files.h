#pragma once

#include <string>
#include <utility>
#include <vector>

#include "adapter/cdi/driver_files.h"
#include "base/mutex.h"
#include "port/slice_devices.h"

namespace carve::cdi {

inline constexpr char kCdiKind[] = "carve.elasticgpu.io/slice";

struct CdiOptions {
  std::string folder;     // /var/run/cdi
  std::string host_root;  // prefix under which this process sees the host's files; empty: none
  std::vector<cdi::DriverUse> uses;  // kinds of driver libraries that policy adds to those for compute and utility
  std::string marks =
      {};  // folder of the marks of whole cards, `<marks>/<id>`; each exists as long as its spec. Empty: none
};

/// Writes each slice as a CDI file in /var/run/cdi, for `--device carve.elasticgpu.io/slice=<id>`. cdiVersion is the
/// lowest that has all fields in use, so that every runtime with CDI reads the file.
///   source  CDI specification. A runtime watches the folder, so a file is created atomically (written under a
///           temporary name that does not end with .json in the same folder, synced, renamed)
class CdiFiles final : public SliceDevices {
 public:
  explicit CdiFiles(CdiOptions options) : options_(std::move(options)) {}
  explicit CdiFiles(std::string folder) : CdiFiles(CdiOptions{std::move(folder), {}, {}, {}}) {}
  /// Creates missing device nodes first, then writes the file and reads it back.
  ///   errors  the system's; kDataLoss: the file does not contain what was written, and was removed again;
  ///           kFailedPrecondition: a device node is missing and the driver forbids to create it
  Result<void> publish(const SliceDevice& device) override;
  Result<void> withdraw(const std::string& id) override;
  Result<std::vector<std::string>> list() override;
  /// The text of the file (for tests and `carve slice create -o json`).
  [[nodiscard]] static std::string spec_of(const SliceDevice& device, const CdiOptions& options,
                                           const cdi::DriverInstallation& installed);
  /// The path of the slice's file.
  [[nodiscard]] std::string path_of(const std::string& id) const;

 private:
  /// The other files of the driver, searched once per driver.
  cdi::DriverInstallation installed(const SliceDevice& device);

  CdiOptions options_;
  Mutex mutex_;
  cdi::DriverInstallation seen_ GUARDED_BY(mutex_);
  std::string seen_key_ GUARDED_BY(mutex_);  // identifies the driver that `seen_` belongs to
};

}  // namespace carve::cdi
