#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "port/node_slices.h"

namespace carve::plugins {

/// A node in memory: sums per card, unique CDI names, owners with processes that still run. Tests can inject errors. It
/// enforces the same limits as the real one by other means: a plain sum per card.
class FakeNodeSlices final : public NodeSlices {
 public:
  explicit FakeNodeSlices(GpuInventory cards) : cards_(std::move(cards)) {}

  void put_cards(GpuInventory cards) {
    const std::lock_guard lock(mutex_);
    cards_ = std::move(cards);
  }

  Result<std::string> promise_device() override {
    const std::lock_guard lock(mutex_);
    return fmt::format("carve.elasticgpu.io/slice=f{}", ++promised_);
  }

  Result<Prepared> prepare(const PrepareRequest& request) override {
    if (during_prepare) during_prepare(request);
    std::unique_lock lock(mutex_);
    ++prepares;
    const Owner& owner = request.record.owner;
    wait_while_held(lock, owner.uid);
    if (!fail_prepare_of.empty() && request.part == fail_prepare_of)
      return fail(Code::kUnavailable, "told to fail");
    const auto* part = part_named(request.record, request.part);
    Part wanted{part != nullptr ? slices_of(owner, *part) : std::vector<Slice>(), request.device, request.environment};
    const auto key = std::pair(owner, request.part);
    const auto found = parts_.find(key);
    if (request.existing_only) {
      if (found == parts_.end()) return fail(Code::kNotFound, "its slices have ended");
      wanted.slices = found->second.slices;
    }
    if (wanted.slices.empty()) return fail(Code::kInvalidArgument, "not in the record");
    if (found != parts_.end()) {
      if (found->second.slices != wanted.slices) return fail(Code::kAlreadyExists, "the part holds something else");
      if (!wanted.device.empty()) found->second.device = wanted.device;
      return Prepared{found->second.device};
    }
    for (const auto& slice : wanted.slices) {
      Bytes sum = slice.memory;
      const Card* card = nullptr;
      for (const auto& one : cards_.cards) card = one.id == slice.card ? &one : card;
      if (card == nullptr) return fail(Code::kNotFound, "no such card");
      for (const auto& [other, there] : parts_) {
        for (const auto& held : there.slices) sum += held.card == slice.card ? held.memory : Bytes(0);
      }
      if (sum > card->memory) return fail(Code::kResourceExhausted, "the card is full");
    }
    if (wanted.device.empty()) wanted.device = fmt::format("carve.elasticgpu.io/slice=f{}", ++promised_);
    return Prepared{(parts_[key] = wanted).device};
  }

  void divide_by(const SharePolicies& policies) override { divided_by.push_back(policies); }
  std::vector<SharePolicies> divided_by;
  Result<void> unprepare(const Owner& owner) override {
    const std::lock_guard lock(mutex_);
    if (std::find(busy.begin(), busy.end(), owner) != busy.end()) {
      ++refused_ends_;
      return fail(Code::kFailedPrecondition, "processes still run");
    }
    std::erase_if(parts_, [&](const auto& entry) { return entry.first.first == owner; });
    return {};
  }

  [[nodiscard]] std::vector<Slice> held() const override {
    const std::lock_guard lock(mutex_);
    std::vector<Slice> all;
    for (const auto& [key, part] : parts_) all.insert(all.end(), part.slices.begin(), part.slices.end());
    return all;
  }

  /// From now on prepare() of the owner with this UID waits inside the call until let_go().
  void hold(const std::string& uid) {
    const std::lock_guard lock(mutex_);
    held_back_.insert(uid);
  }
  void let_go(const std::string& uid) {
    {
      const std::lock_guard lock(mutex_);
      held_back_.erase(uid);
    }
    changed_.notify_all();
  }
  /// How many calls of prepare() wait for let_go().
  [[nodiscard]] std::size_t waiting(const std::string& uid) const {
    const std::lock_guard lock(mutex_);
    return waiting_.count(uid);
  }

  /// How often unprepare() was refused because the owner's processes still ran.
  [[nodiscard]] int refused_ends() const {
    const std::lock_guard lock(mutex_);
    return refused_ends_;
  }

  [[nodiscard]] GpuInventory cards() const override {
    const std::lock_guard lock(mutex_);
    return cards_;
  }

  [[nodiscard]] NodeTroubles troubles() const override {
    const std::lock_guard lock(mutex_);
    NodeTroubles troubles;
    troubles.gpu = gpu_;
    return troubles;
  }

  void set_gpu(GpuState state) {
    const std::lock_guard lock(mutex_);
    gpu_ = state;
  }
  void set_health(std::size_t card, Health health) {
    const std::lock_guard lock(mutex_);
    cards_.cards.at(card).health = std::move(health);
  }
  /// The slices of a container with this CDI name.
  [[nodiscard]] std::vector<Slice> behind(const std::string& device) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, part] : parts_) {
      if (part.device == device) return part.slices;
    }
    return {};
  }

  /// The environment variables of a container with this CDI name.
  [[nodiscard]] std::map<std::string, std::string> environment_behind(const std::string& device) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, part] : parts_) {
      if (part.device == device) return part.environment;
    }
    return {};
  }

  std::function<void(const PrepareRequest&)> during_prepare;  // called inside each prepare(), without a lock
  std::string fail_prepare_of;
  std::vector<Owner> busy;
  int prepares = 0;

 private:
  struct Part {
    std::vector<Slice> slices;
    std::string device;
    std::map<std::string, std::string> environment;
  };
  void wait_while_held(std::unique_lock<std::mutex>& lock, const std::string& uid) {
    const auto here = waiting_.insert(uid);
    changed_.wait(lock, [&] { return !held_back_.contains(uid); });
    waiting_.erase(here);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_back_;
  std::multiset<std::string> waiting_;
  GpuInventory cards_;
  GpuState gpu_ = NodeTroubles().gpu;
  std::uint64_t promised_ = 0;
  int refused_ends_ = 0;
  std::map<std::pair<Owner, std::string>, Part> parts_;
};

/// `count` cards of 80 GiB, "GPU-0000000<n>-…".
[[nodiscard]] inline GpuInventory some_cards(int count) {
  GpuInventory inventory;
  inventory.driver_version = "580.65.06";
  inventory.cuda_version = "13.0";
  for (int i = 0; i < count; ++i) {
    Card card;
    card.id = CardId(fmt::format("GPU-{:08x}-AAAA-bbbb-cccc-000000000000", i));
    card.vendor = "nvidia";
    card.model = "NVIDIA H200";
    card.memory = Bytes::gib(80) + Bytes(4096);  // a real card has no round number
    card.numa_node = i / 4;
    card.pcie_root = fmt::format("0000:{:02x}", 0x10 + i);
    inventory.cards.push_back(card);
    inventory.pci_bus_ids.push_back(fmt::format("00000000:{:02X}:00.0", 0x20 + i));
  }
  return inventory;
}

}  // namespace carve::plugins
