#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "app/control/state/cluster_model.h"
#include "app/control/leader/leader.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/kube/event.h"
#include "core/policy/policy.h"
#include "port/kube_api.h"

namespace carve::control {

/// Answers kube-scheduler's bind call: chooses the cards on the named node again, sets them aside, and makes the single
/// write to the pod. Safe from any thread; calls may run concurrently.
///
/// A write with a lost answer may have taken effect, or may still do so. Its room stays set aside, and the binder
/// reads the pod until the outcome is certain:
///   - The pod is bound with our record: done. The watch will show it, and the record then accounts for the room.
///   - The pod is bound differently, has ended, is deleted, or another pod has its name: the API server binds a pod
///     only once, and our Binding carries the UID, so our write can no longer take effect. The room is released as soon
///     as the model does not contain the pod any more. Before that the watch may still show that our write took effect
///     before the pod was deleted, so the room must not be assigned again.
///   - The pod is not bound: the request may still be in progress inside the server. A server cancels a request after
///     its --request-timeout (60 s by default). A pod that is still unbound kWriteExpired after the write began will
///     never be bound by that write: the room is released. Until then a repeated call for the same node writes the same
///     record, so it does not matter which of the two writes arrives. For another node the first write to arrive wins,
///     and the room of both is set aside.
class Binder {
 public:
  static constexpr std::chrono::milliseconds kWrite = std::chrono::seconds(2);  // the API client's limit of one call
  static constexpr Clock::Duration kWriteExpired = std::chrono::seconds(75);
  static constexpr Clock::Duration kReadAfter = std::chrono::seconds(2);  // from a write until its pod is read

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // its calls end within kWrite
    const Clock& clock;
    Log& log;
    codec::DialectSettings settings;
    std::function<const PolicyRow&(const PodEntry& pod, const std::string& node)> policy;
    std::function<void(codec::EventNote)> post_event;  // may be empty
    /// The slices for which the pod was sent to that node (Extender::sent_for); may be empty.
    std::function<std::vector<Slice>(const Owner& owner, const std::string& node)> sent_for = {};
    /// Why it was sent there (Extender::why_sent); may be empty.
    std::function<std::string(const Owner& owner, const std::string& node)> why_sent = {};
    ClaimBook* claims = nullptr;  // nullptr: claims are not read
  };
  explicit Binder(World world) : world_(std::move(world)) {}

  /// Takes ExtenderBindingArgs and returns ExtenderBindingResult. After an error kube-scheduler retries.
  ///   cost    one POST; one GET if the model does not contain the pod yet, or if the outcome is unknown
  [[nodiscard]] std::string bind(std::string_view call);
  /// Reads the pods of unsettled writes until `stop`; runs on every replica.
  void run(Clock& clock, const std::stop_token& stop);
  void step();

  /// A bind call is in progress, or one ended within the last kBurst: in a burst the next call follows soon.
  static constexpr Clock::Duration kBurst = std::chrono::milliseconds(200);
  [[nodiscard]] bool busy() const;

  struct Stats {
    std::uint64_t bound = 0;
    std::uint64_t refused = 0;      // nothing was written: no room, not the leader, …
    std::uint64_t failed = 0;       // the server refused the write
    std::uint64_t unknown = 0;      // the answer was lost
    std::uint64_t found_bound = 0;  // the answer was lost, and the write had taken effect
    std::uint64_t released = 0;     // rooms of writes that did not take effect
  };
  [[nodiscard]] Stats stats() const;

 private:
  Result<void> bind_pod(std::string_view call);
  Result<ClusterModel::Pod> read_pod(const std::string& namespace_name, const std::string& name,
                                     const std::string& uid);
  Result<void> write(const PodEntry& pod, const Reservation& room, const std::string& why);
  Result<void> bind_without_cards(const PodEntry& pod, const std::string& node);
  [[nodiscard]] std::map<std::string, std::string> annotations_of(const PodEntry& pod, const Record& record,
                                                                  const std::string& text) const;
  enum class Seen : std::uint8_t { kUnreadable, kUnbound, kOurs, kNever };
  /// Reads the pod for which `room` is set aside. kNever: our write can no longer take effect.
  Seen read_outcome(const Reservation& room);
  /// For a pod with outcome kNever: the model still contains it, so the watch has not shown its end yet.
  [[nodiscard]] bool watch_is_behind(const Reservation& room) const;
  void report_assigned(const PodEntry& pod, const Reservation& room, const std::string& why = {});

  World world_;
  std::atomic<int> in_bind_ = 0;                              // calls in progress
  std::atomic<Clock::Duration::rep> last_ = -kBurst.count();  // when a call last ended
  std::atomic<std::uint64_t> bound_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::atomic<std::uint64_t> failed_ = 0;
  std::atomic<std::uint64_t> unknown_ = 0;
  std::atomic<std::uint64_t> found_bound_ = 0;
  std::atomic<std::uint64_t> released_ = 0;
};

/// The slices of a pod, for people: "on node n1: container c: 4 GiB and compute 30 (burst) of card GPU-8f…; …".
[[nodiscard]] std::string what_it_got(const std::string& node, const std::vector<Slice>& slices);

}  // namespace carve::control
