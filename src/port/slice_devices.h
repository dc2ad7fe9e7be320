#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/gpu.h"

namespace carve {

/// What a container runtime needs to put a slice into a container.
struct SliceDevice {
  std::string id;
  bool whole = false;          // a whole card: no library is mounted
  std::vector<int> minors;     // of its cards
  std::string slice_folder;    // on the host; mounted under its name. For a whole card an empty folder that marks
                               // its processes; publish() creates it
  std::string private_folder = {};  // the folder around it that only root and `user` can enter; empty: there is none
  std::uint32_t user = 0;      // the user who requested the slice
  std::string card_files = {};  // host folder of the slice's own nodes of its cards; empty: it uses the host's nodes
  std::string library_folder;  // libcarve-cuda.so, libcarve-nvml.so, carve-hook
  std::string driver_version;
  DriverFiles driver;
  std::vector<std::string> driver_mounts;  // further files of the driver: sockets of its daemons
  std::map<std::string, std::string> environment = {};  // what its dialect promises, in addition to Carve's own
};

/// The CDI files by which container runtimes find a slice as a device. Safe from any thread: calls for different slices
/// run at the same time, calls for one slice do not.
class SliceDevices {
 public:
  virtual ~SliceDevices() = default;
  /// Publishes the device completely or not at all. An identical published device is not touched. While its agent
  /// lives, a published device never changes. An agent that starts may publish it again with other contents, because
  /// the host files that it names have changed since: the driver was upgraded, or the agent and its library were. The
  /// next start of the container then finds existing files; a running container keeps its mounts. The cards of a slice
  /// are in a spec only as device nodes and never change; its limits are in no spec.
  virtual Result<void> publish(const SliceDevice& device) = 0;
  /// Success when the device does not exist. Also deletes what an agent left behind that crashed while publishing.
  virtual Result<void> withdraw(const std::string& id) = 0;
  /// All slices that have any file, including half-published ones.
  virtual Result<std::vector<std::string>> list() = 0;
};

}  // namespace carve
