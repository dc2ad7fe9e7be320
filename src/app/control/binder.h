#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "app/control/cluster_model.h"
#include "app/control/leader.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/dra/event.h"
#include "core/policy/policy.h"
#include "port/kube_api.h"

namespace carve::control {

/// kube-scheduler's bind call: chooses the cards again on the node that it names, sets them aside, and makes the one
/// write to the pod. Safe from any thread, any number at once.
///
/// A write whose answer is lost may have taken effect, or may still do so. Its room stays set aside, and the pod is
/// read until it is certain:
///   - it is bound with our record: done; the watch will show it, and the room becomes the record's;
///   - it is bound otherwise, has ended, is gone, or is a namesake: the API server binds a pod once, and our Binding
///     carries the UID, so ours cannot take effect any more: released, as soon as the watch knows of no such pod (it
///     may yet tell that ours had taken effect before the pod went: its room is not to be given away before that);
///   - it is not bound: the request may still be on its way inside the server. A server gives no request longer than
///     its --request-timeout (60 s by default) and then cancels it; so what is not bound when read kWriteExpired after the
///     write began never will be by that write: released. Until then a repeated call for the same node writes the very
///     same record, so that it does not matter which of the two arrives; on another node the first to arrive wins, and
///     both are covered.
class Binder {
 public:
  static constexpr std::chrono::milliseconds kWrite = std::chrono::seconds(2);  // the API client's limit of one call
  static constexpr Clock::Duration kWriteExpired = std::chrono::seconds(75);
  static constexpr Clock::Duration kReadAfter = std::chrono::seconds(2);  // before a write without its event is read

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // whose calls end within kWrite
    const Clock& clock;
    Log& log;
    codec::DialectSettings settings;
    std::function<const PolicyRow&(const PodEntry& pod, const std::string& node)> policy;
    std::function<void(codec::EventNote)> post_event;  // may be empty
    /// What the pod was sent to that node for (Extender::sent_for); may be empty.
    std::function<std::vector<Slice>(const Owner& owner, const std::string& node)> sent_for = {};
    /// And why (Extender::why_sent); may be empty.
    std::function<std::string(const Owner& owner, const std::string& node)> why_sent = {};
  };
  explicit Binder(World world) : world_(std::move(world)) {}

  /// ExtenderBindingArgs in, ExtenderBindingResult out. An error is for kube-scheduler to try again.
  ///   cost    one POST; one GET where the pod is not known yet or the outcome is not
  [[nodiscard]] std::string bind(std::string_view call);
  /// Reads what is unsettled, on every replica; until `stop`.
  void run(Clock& clock, const std::stop_token& stop);
  void step();

  /// Somebody waits for a Binding, or did within kBurst: of a burst the next comes soon.
  static constexpr Clock::Duration kBurst = std::chrono::milliseconds(200);
  [[nodiscard]] bool busy() const;

  struct Stats {
    std::uint64_t bound = 0;
    std::uint64_t refused = 0;      // no room, not the leader, …: nothing was written
    std::uint64_t failed = 0;       // the server said no
    std::uint64_t unknown = 0;      // the answer was lost
    std::uint64_t found_bound = 0;  // … and it had taken effect
    std::uint64_t released = 0;     // room whose write came to nothing
  };
  [[nodiscard]] Stats stats() const;

 private:
  Result<void> bind_pod(std::string_view call);
  Result<ClusterModel::Pod> read_pod(const std::string& space, const std::string& name, const std::string& uid);
  Result<void> write(const PodEntry& pod, const Reservation& room, const std::string& why);
  Result<void> bind_without_cards(const PodEntry& pod, const std::string& node);
  [[nodiscard]] std::map<std::string, std::string> annotations_of(const PodEntry& pod, const Record& record,
                                                                  const std::string& text) const;
  enum class Seen : std::uint8_t { kUnreadable, kUnbound, kOurs, kNever };
  /// What the server says of a pod for which something is set aside. kNever: ours cannot take effect any more.
  Seen read_outcome(const Reservation& room);
  /// Of a pod for which the server says kNever: the model still has it, so its end is yet to be told.
  [[nodiscard]] bool watch_is_behind(const Reservation& room) const;
  void report_assigned(const PodEntry& pod, const Reservation& room, const std::string& why = {});

  World world_;
  std::atomic<int> in_bind_ = 0;                              // calls that are not answered yet
  std::atomic<Clock::Duration::rep> last_ = -kBurst.count();  // when a call last ended
  std::atomic<std::uint64_t> bound_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::atomic<std::uint64_t> failed_ = 0;
  std::atomic<std::uint64_t> unknown_ = 0;
  std::atomic<std::uint64_t> found_bound_ = 0;
  std::atomic<std::uint64_t> released_ = 0;
};

/// What a pod got, for a person: "c: 4 GiB of GPU-8f… (NVIDIA H200) on n1, …".
[[nodiscard]] std::string what_it_got(const std::string& node, const std::vector<Slice>& slices);

}  // namespace carve::control
