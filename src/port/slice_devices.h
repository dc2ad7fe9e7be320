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
  bool whole = false;          // no library then
  std::vector<int> minors;     // of its cards
  std::string slice_folder;    // on the host; mounted under its name. Of a whole one an empty folder, a mark by
                               // which its processes are told: publish() makes it
  std::string gate = {};       // the folder around it that only root and `user` pass; empty: there is none
  std::uint32_t user = 0;      // who asked for it
  std::string card_files = {};  // folder of its own nodes of its cards, on the host; empty: they are the host's
  std::string library_folder;  // libcarve-cuda.so, libcarve-nvml.so, carve-hook
  std::string driver_version;
  DriverFiles driver;
  std::vector<std::string> driver_mounts;  // what the driver needs besides: sockets of its daemons
  std::map<std::string, std::string> environment = {};  // what its dialect promises, besides our own
};

/// The files by which container runtimes find a slice as a device (CDI).
class SliceDevices {
 public:
  virtual ~SliceDevices() = default;
  /// Publishes it whole or not at all. What is published already in the same words is not touched. While its agent
  /// lives a published one never changes; an agent that starts may publish it anew in other words, because what it
  /// names on the host has changed since: the driver was upgraded, or the agent was, and with it the library. The
  /// next start of the container then finds files that are there; what runs keeps what it has mounted. Cards and
  /// limits of a slice stand in no spec but as device nodes, and these stay.
  virtual Result<void> publish(const SliceDevice& device) = 0;
  /// Success when there is none. What an agent left that died while it published goes too.
  virtual Result<void> withdraw(const std::string& id) = 0;
  /// All of which there is anything, half published ones included.
  virtual Result<std::vector<std::string>> list() = 0;
};

}  // namespace carve
