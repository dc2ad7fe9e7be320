#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

// The kubelet's sockets as the doors see them: what it asks of a node's driver (the two *Calls, implemented
// by app/doors, called by adapter/kubelet) and what it can be asked (PodResources). Nothing here knows gRPC.
namespace carve {

/// A claim as the kubelet names it.
struct ClaimRef {
  std::string space;  // namespace
  std::string name;
  std::string uid;
};

/// One device of a claim, ready: containers that name one of the requests get the CDI devices.
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

/// What the kubelet asks of a DRA driver. Called on threads that may block; several at once. Every claim of
/// the question has an answer under its UID; both calls may come again for the same claim at any time.
class DraCalls {
 public:
  template <class T>
  using PerClaim = std::map<std::string, Result<T>>;
  virtual ~DraCalls() = default;
  virtual PerClaim<std::vector<ClaimDevice>> prepare(const std::vector<ClaimRef>& claims) = 0;
  virtual PerClaim<void> unprepare(const std::vector<ClaimRef>& claims) = 0;
  /// All devices, for the kubelet's health stream. Cheap.
  [[nodiscard]] virtual std::vector<DeviceHealthView> health() const = 0;
};

struct SlotDevice {
  std::string id;  // up to 63 characters
  bool healthy = true;
  friend bool operator==(const SlotDevice&, const SlotDevice&) = default;
};

/// What the kubelet asks of a device plugin. All but list() may come at any time, from any thread.
class SlotCalls {
 public:
  using Answer = std::function<void(Result<void>)>;
  virtual ~SlotCalls() = default;
  /// The full list as it is now. Cheap: it is what a restarted kubelet waits for.
  [[nodiscard]] virtual std::vector<SlotDevice> list() const = 0;
  /// The CDI name for a container that got these slots. Only local work: the kubelet admits one pod at a
  /// time.
  virtual Result<std::string> allocate(const std::vector<std::string>& slots) = 0;
  /// Called before every start of that container; `answer` is called once, at once or later, from any thread.
  virtual void before_start(const std::vector<std::string>& slots, Answer answer) = 0;
};

/// Which container holds which slots, as the kubelet says. No pod UID in it; ordinary init containers are
/// missing.
struct SlotHolder {
  std::string space;
  std::string pod;
  std::string container;
  std::vector<std::string> slots;
};

/// The same from the file that the kubelet keeps for itself: with UID and init containers, but its form is
/// nobody's promise. An init container's slots stand again under the container that inherits them.
struct SlotEntry {
  std::string pod_uid;
  std::string container;
  std::vector<std::string> slots;
  std::vector<std::string> cdi;  // what Allocate answered: one-shot names, so an exact identity
};

/// Who holds what, asked of the kubelet.
class PodResources {
 public:
  virtual ~PodResources() = default;
  /// Everybody who holds `resource` now.
  ///   errors  kUnavailable, kDeadlineExceeded, kResourceExhausted (its rate limit)
  virtual Result<std::vector<SlotHolder>> holders(const std::string& resource) = 0;
  ///   errors  kNotFound: no such file; kInvalidArgument: it is of another form
  virtual Result<std::vector<SlotEntry>> checkpoint(const std::string& resource) = 0;
  /// How many devices each resource has for which a device plugin has registered on this node, anybody's.
  ///   errors  as checkpoint()
  virtual Result<std::map<std::string, std::size_t>> registered() { return std::map<std::string, std::size_t>(); }
};

}  // namespace carve
