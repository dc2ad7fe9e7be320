#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "app/node/gpu_objects.h"
#include "base/clock.h"
#include "port/kube_api.h"

namespace carve::node {

inline constexpr const char* kGpus = "/apis/elasticgpu.io/v1alpha1/gpus";

/// Keeps this node's GPU objects as the cards and their slices are: compares with what the server
/// has, writes the difference, at most once per card and kGap, and what
/// is neither a slice nor the card's health only after kGap: the next thing may be that a slice has
/// gone, and others wait for that: it is written at once, whatever was written a moment ago. What
/// somebody edited or deleted by hand is put right; nothing is ever read back. A card's object goes
/// when the card is gone for good: the driver answers and does not list it, nobody holds anything of
/// it, for kGone.
class GpuPublisher {
 public:
  static constexpr Clock::Duration kGap = std::chrono::seconds(2);
  static constexpr Clock::Duration kGone = std::chrono::seconds(30);

  GpuPublisher(std::string node, KubeApi& api) : node_(std::move(node)), api_(api) {}

  /// The watch's half; on a thread of its own, until `stop`.
  void run_watch(const std::stop_token& stop);
  /// What the watch delivers (and tests).
  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);

  /// One comparison and the writes that are due. `complete`: the driver has listed all its cards,
  /// so what is not in `wanted` is not there. True: something waits for its time.
  ///   errors  the API server's; what was not written is tried again by a later call
  Result<bool> step(const std::vector<codec::GpuObject>& wanted, bool complete,
                    const std::string& node_uid, Clock::Time now);
  /// The server's objects changed since the last step().
  [[nodiscard]] bool dirty() const;

 private:
  Result<void> write(const codec::GpuObject& gpu, const codec::GpuDigest* there,
                     const std::string& node_uid);
  Result<bool> remove_gone(const std::vector<codec::GpuObject>& wanted, bool complete,
                           Clock::Time now);
  void learn(const std::string& object);

  std::string node_;
  KubeApi& api_;
  mutable std::mutex mutex_;
  bool synced_ = false;
  bool dirty_ = false;
  std::map<std::string, codec::GpuDigest> existing_;
  // The stepping thread's own.
  struct Shown {
    std::size_t urgent = 0;  // of the status that was written last
    Clock::Time next{};      // write, not before
    std::optional<Clock::Time> waits_since;  // a change that can wait
    std::vector<Slice> slices;  // that stand there
  };
  std::map<std::string, Shown> shown_;                // by object
  std::map<std::string, Clock::Time> missing_since_;  // objects without a card
};

}  // namespace carve::node
