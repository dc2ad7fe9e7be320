#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

// The kubelet's sockets from the view of the kubelet plugins: what the kubelet calls on a node's driver (the two
// *Calls, implemented by app/plugins and called by adapter/kubelet), and what it can be queried for (PodResources).
// Nothing here knows gRPC.
namespace carve {

/// A resource claim as the kubelet identifies it.
struct ClaimRef {
  std::string namespace_name;  // namespace
  std::string name;
  std::string uid;
};

/// One prepared device of a claim: containers that refer to one of the requests get the CDI devices.
struct ClaimDevice {
  std::vector<std::string> requests;  // base names, without "/sub"
  std::string pool;
  std::string device;
  std::vector<std::string> cdi;
  std::string share;  // empty: not a shared allocation
};

struct DeviceHealthView {
  std::string pool;
  std::string device;
  bool ok = true;
  std::string message;
  friend bool operator==(const DeviceHealthView&, const DeviceHealthView&) = default;
};

/// The calls of the kubelet to a DRA driver. They run on threads that may block, several at a time. The answer has an
/// entry for the UID of every claim of the call. The kubelet may repeat both calls for the same claim at any time.
class DraCalls {
 public:
  template <class T>
  using PerClaim = std::map<std::string, Result<T>>;
  virtual ~DraCalls() = default;
  virtual PerClaim<std::vector<ClaimDevice>> prepare(const std::vector<ClaimRef>& claims) = 0;
  virtual PerClaim<void> unprepare(const std::vector<ClaimRef>& claims) = 0;
  /// All devices, for the kubelet's health stream. Must be cheap.
  [[nodiscard]] virtual std::vector<DeviceHealthView> health() const = 0;
};

struct SlotDevice {
  std::string id;  // up to 63 characters
  bool healthy = true;
  friend bool operator==(const SlotDevice&, const SlotDevice&) = default;
};

/// The calls of the kubelet to a device plugin. All of them except list() may arrive at any time, from any thread.
class SlotCalls {
 public:
  using Answer = std::function<void(Result<void>)>;
  virtual ~SlotCalls() = default;
  /// The complete current list. Must be cheap: a restarted kubelet waits for it.
  [[nodiscard]] virtual std::vector<SlotDevice> list() const = 0;
  /// The CDI name for a container that got these slots. Only local work is allowed: the kubelet admits one pod at a
  /// time.
  virtual Result<std::string> allocate(const std::vector<std::string>& slots) = 0;
  /// Called before every start of that container. `answer` is called once, immediately or later, from any thread.
  virtual void before_start(const std::vector<std::string>& slots, Answer answer) = 0;
};

/// A container and its slots, as the PodResources API reports them. It has no pod UID, and ordinary init containers are
/// missing.
struct SlotHolder {
  std::string namespace_name;
  std::string pod;
  std::string container;
  std::vector<std::string> slots;
};

/// The same from the kubelet's own checkpoint file. It has the UID and init containers, but its format is not a stable
/// API. An init container's slots appear again under the container that inherits them.
struct SlotEntry {
  std::string pod_uid;
  std::string container;
  std::vector<std::string> slots;
  std::vector<std::string> cdi;  // the answers of Allocate: one-time names, an exact identity
};

/// Queries the kubelet for the holders of slots.
class PodResources {
 public:
  virtual ~PodResources() = default;
  /// All containers that hold `resource` now.
  ///   errors  kUnavailable, kDeadlineExceeded, kResourceExhausted (its rate limit)
  virtual Result<std::vector<SlotHolder>> holders(const std::string& resource) = 0;
  ///   errors  kNotFound: no such file; kInvalidArgument: it has another format
  virtual Result<std::vector<SlotEntry>> checkpoint(const std::string& resource) = 0;
  /// The number of devices of each resource for which any device plugin has registered on this node.
  ///   errors  as checkpoint()
  virtual Result<std::map<std::string, std::size_t>> registered() { return std::map<std::string, std::size_t>(); }
};

}  // namespace carve
