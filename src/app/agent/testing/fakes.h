#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/agent/agent.h"
#include "app/agent/testing/fake_cgroups.h"
#include "app/agent/testing/fake_processes.h"

// Fakes of the agent's ports, in memory. Fate throws at the n-th step that changes the world, like kill -9: completed
// steps stay.
namespace carve::agent::fakes {

class FakeGpu final : public Gpu {
 public:
  FakeGpu() {
    for (int i = 0; i < 2; ++i) {
      Card card;
      card.id = CardId("GPU-" + std::to_string(i));
      card.vendor = "nvidia";
      card.model = "NVIDIA H200";
      card.memory = Bytes::gib(140);
      card.minor = i;
      listed.cards.push_back(card);
      listed.pci_bus_ids.push_back("0000:0" + std::to_string(i) + ":00.0");
    }
    listed.driver_version = "580.1";
    listed.files = {"/d/libcuda.so.1", "/d/libnvidia-ml.so.1"};
  }
  Result<GpuInventory> inventory() override {
    if (now_state != GpuState::kOk) return fail(Code::kUnavailable, "no driver");
    return listed;
  }
  Result<std::vector<GpuUsage>> usage() override {
    if (now_state != GpuState::kOk) return fail(Code::kUnavailable, "no driver");
    std::vector<GpuUsage> all;
    const std::lock_guard lock(mutex_);
    for (const auto& card : listed.cards) {
      GpuUsage usage;
      usage.card = card.id;
      usage.processes = processes[card.id.str()];
      usage.used = used[card.id.str()];
      for (const auto& process : usage.processes) usage.used += process.memory;
      usage.lost = lost.count(card.id.str()) != 0;
      usage.recovery = recovery[card.id.str()];
      all.push_back(usage);
    }
    return all;
  }
  std::vector<GpuEvent> wait_events(std::chrono::milliseconds) override { return std::exchange(events, {}); }
  void renew() override { ++renewed; }
  [[nodiscard]] GpuState state() const override { return now_state; }
  [[nodiscard]] std::string reason() const override {
    return now_state == GpuState::kOk ? "" : "no driver";
  }
  GpuInventory listed;
  GpuState now_state = GpuState::kOk;
  std::map<std::string, std::vector<GpuProcess>> processes;
  std::map<std::string, Bytes> used;  // in addition to the memory of the processes
  std::set<std::string> lost;
  std::map<std::string, std::optional<std::uint32_t>> recovery;  // nullopt: the driver reports no recommendation
  std::vector<GpuEvent> events;
  int renewed = 0;

 private:
  std::mutex mutex_;  // several threads may read the usage
};

class FakePages final : public Pages {
 public:
  explicit FakePages(Fate& fate) : fate_(fate) {}
  Result<void> put(const PageOrder& order) override {
    if (on_call) on_call();
    if (on_put) on_put(order.id);
    const std::lock_guard lock(mutex_);
    if (away) return fail(Code::kUnavailable, "arbiter away");
    fate_.before();
    orders[order.id] = order;
    remains.erase(order.id);
    return {};
  }
  Result<void> drop(const std::string& id) override {
    if (on_call) on_call();
    const std::lock_guard lock(mutex_);
    if (away) return fail(Code::kUnavailable, "arbiter away");
    fate_.before();
    orders.erase(id);
    remains.erase(id);
    return {};
  }
  Result<std::vector<PageSlice>> list() override {
    if (on_call) on_call();
    const std::lock_guard lock(mutex_);
    if (away) return fail(Code::kUnavailable, "arbiter away");
    std::vector<PageSlice> all;
    for (const auto& [id, order] : orders) {
      PageSlice slice;
      slice.id = id;
      for (const auto& card : order.slices)
        slice.cards.push_back({card.card, announced[id], busy_ns[id], charged_ns[id], 0, rescues[id], granted(id)});
      for (const auto pid : hellos[id]) slice.processes.push_back({pid});
      all.push_back(slice);
    }
    for (const auto& id : remains) all.push_back({id, true, {}, {}});
    return all;
  }
  Result<void> set_overhead(const std::string& id, std::uint32_t index, Bytes bytes) override {
    const std::lock_guard lock(mutex_);
    overheads[id + "/" + std::to_string(index)] = bytes;
    return {};
  }
  bool away = false;
  std::function<void()> on_call;  // simulates an arbiter that does not answer yet: put, drop and list
  std::function<void(const std::string&)> on_put;  // simulates a slow put, with the ID of the slice
  std::map<std::string, PageOrder> orders;
  std::set<std::string> remains;  // of slices that an earlier arbiter left
  std::map<std::string, std::set<std::int32_t>> hellos;
  std::map<std::string, std::uint64_t> busy_ns;
  std::map<std::string, std::uint64_t> charged_ns;
  std::map<std::string, std::uint32_t> granted_ms;  // nothing: an arbiter that does not report it
  std::map<std::string, std::uint32_t> rescues;
  std::map<std::string, Bytes> announced;
  std::map<std::string, Bytes> overheads;

 private:
  [[nodiscard]] std::optional<std::uint32_t> granted(const std::string& id) const {
    const auto found = granted_ms.find(id);
    return found == granted_ms.end() ? std::nullopt : std::optional(found->second);
  }
  std::mutex mutex_;  // one thread may drop while another lists
  Fate& fate_;
};

class FakeJournal final : public NodeJournal {
 public:
  explicit FakeJournal(Fate& fate) : fate_(fate) {}
  Result<void> append(const std::vector<JournalEvent>& events) override {
    if (full) return fail(Code::kResourceExhausted, "disk full");
    fate_.before();
    if (on_append) on_append();
    return apply_all(state_, events);
  }
  [[nodiscard]] const JournalState& state() const override { return state_; }
  bool full = false;
  std::function<void()> on_append;  // simulates a slow disk

 private:
  Fate& fate_;
  JournalState state_;
};

class FakeDevices final : public SliceDevices {
 public:
  Result<void> publish(const SliceDevice& device) override {
    if (on_publish) on_publish(device.id);
    const std::lock_guard lock(mutex_);
    published.insert(device.id);
    environments[device.id] = device.environment;
    last = device;
    return {};
  }
  Result<void> withdraw(const std::string& id) override {
    const std::lock_guard lock(mutex_);
    published.erase(id);
    return {};
  }
  Result<std::vector<std::string>> list() override {
    const std::lock_guard lock(mutex_);
    return std::vector<std::string>(published.begin(), published.end());
  }
  std::set<std::string> published;
  SliceDevice last;
  std::function<void(const std::string&)> on_publish;  // simulates a slow disk
  std::map<std::string, std::map<std::string, std::string>> environments;  // as published last

 private:
  std::mutex mutex_;  // slices of different owners are published at the same time
};

}  // namespace carve::agent::fakes
