#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "app/node/gpu_objects.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "port/kube_api.h"

namespace carve::node {

inline constexpr const char* kGpus = "/apis/elasticgpu.io/v1alpha1/gpus";

/// Keeps this node's GPU objects equal to the cards and their slices. It compares them with the API server's objects
/// and writes the difference, at most once per card in kGap. A change that is neither a slice nor the card's health is
/// written only after kGap. The end of a slice is written immediately, even right after another write, because other
/// components wait for the room. Manual edits and deletions are corrected. Nothing is ever read back. A card's object
/// is deleted when for kGone the driver answers without listing the card and no slice of the card is held.
class GpuPublisher {
 public:
  static constexpr Clock::Duration kGap = std::chrono::seconds(2);
  static constexpr Clock::Duration kGone = std::chrono::seconds(30);

  GpuPublisher(std::string node, KubeApi& api) : node_(std::move(node)), api_(api) {}

  /// Runs the watch until `stop`. Call it on a thread of its own.
  void run_watch(const std::stop_token& stop);
  /// Called by the watch, and by tests.
  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);

  /// Compares once and writes what is due. `complete`: the driver has listed all its cards, so a card that is not in
  /// `wanted` is gone. True: a write is not due yet.
  ///   errors  the API server's; a later call retries what was not written
  Result<bool> step(const std::vector<codec::GpuObject>& wanted, bool complete,
                    const std::string& node_uid, Clock::Time now);
  /// The server's objects changed since the last step().
  [[nodiscard]] bool dirty() const;

 private:
  Result<void> write(const codec::GpuObject& gpu, const codec::GpuDigest* there,
                     const std::string& node_uid);
  Result<bool> remove_gone(const std::vector<codec::GpuObject>& wanted, bool complete,
                           Clock::Time now);
  void learn(const std::string& object) REQUIRES(mutex_);

  std::string node_;
  KubeApi& api_;
  mutable Mutex mutex_;
  bool synced_ GUARDED_BY(mutex_) = false;
  bool dirty_ GUARDED_BY(mutex_) = false;
  std::map<std::string, codec::GpuDigest> existing_ GUARDED_BY(mutex_);
  // Only for the thread of step().
  struct Shown {
    std::size_t urgent = 0;  // of the status that was written last
    Clock::Time next{};      // of the next write
    std::optional<Clock::Time> waits_since;  // a change that can wait
    std::vector<Slice> slices;  // in the object
  };
  std::map<std::string, Shown> shown_;                // by object
  std::map<std::string, Clock::Time> missing_since_;  // objects without a card
};

}  // namespace carve::node
