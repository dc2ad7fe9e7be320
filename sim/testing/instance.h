#pragma once

#include <sys/types.h>

#include <string>

// A private simulated driver: private mount namespace, own /dev, own socket, own daemon. For tests (one instance per
// test binary, set up before anything else runs) and for carve-sim-run.
namespace carve::sim {

class Instance {
 public:
  Instance() = default;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  /// Stops the daemon. The mounts disappear with the namespace.
  ~Instance();

  /// Moves the calling process into a new mount namespace with a fresh /dev (null, zero, …, the
  /// host's shm and pts, the cards' nodes) and an empty /run/nvidia-sim, and starts a daemon there.
  ///   in      profile "h200x2"; daemon: path of carve-simd (default: this build's)
  ///   errors  the reason in words; empty on success. Needs root. Call it while the process has one thread.
  std::string start(const std::string& profile, const std::string& daemon = "");

  /// Stops the daemon (sends SIGTERM and waits) and starts another with the same profile. All contexts are lost.
  std::string restart();
  void stop();
  [[nodiscard]] pid_t daemon_pid() const { return daemon_; }

  /// The folder of this build's libcuda.so.1 and libnvidia-ml.so.1.
  static std::string library_folder();
  static std::string daemon_path();
  static std::string simctl_path();
  /// Puts library_folder() first in LD_LIBRARY_PATH (for children; the process itself opens the libraries by path).
  static void export_libraries();

 private:
  std::string spawn();

  std::string profile_;
  std::string daemon_binary_;
  pid_t daemon_ = -1;
};

// To use one instance for a whole gtest binary, include testing/gtest_instance.h and write
//   const auto* env = ::testing::AddGlobalTestEnvironment(new carve::sim::InstanceEnvironment("h200x2"));
// or construct an Instance in your own main().

}  // namespace carve::sim
