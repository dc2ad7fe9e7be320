#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "port/containers.h"
#include "port/processes.h"

// The processes of the machine, in memory: by PID, and by pod.
namespace carve::agent::fakes {

class FakeProcesses final : public Processes {
 public:
  [[nodiscard]] std::string command(std::int32_t) const override {
    if (on_command) on_command();
    return "job";
  }
  std::function<void()> on_command;  // simulates a slow /proc
  [[nodiscard]] std::vector<std::string> slices_seen_by(std::int32_t pid) const override {
    const auto found = sees.find(pid);
    return found != sees.end() ? found->second : std::vector<std::string>();
  }
  [[nodiscard]] std::vector<std::int32_t> holders_of_card(int minor) const override {
    const auto found = holders.find(minor);
    return found != holders.end() ? found->second : std::vector<std::int32_t>();
  }
  std::map<int, std::vector<std::int32_t>> holders;  // of each card's device file
  [[nodiscard]] DeviceUser device_user(std::int32_t pid) const override {
    const auto found = users.find(pid);
    return found != users.end() ? found->second : DeviceUser{1000, true, "/home/job"};
  }
  std::map<std::int32_t, DeviceUser> users;  // of processes outside slices; absent: an ordinary user's CUDA program
  [[nodiscard]] bool only_inherited(std::int32_t pid, std::int32_t from) const override {
    const auto found = parents.find(pid);
    return found != parents.end() && found->second == from;
  }
  std::map<std::int32_t, std::int32_t> parents;  // of forks without device files of their own
  Result<bool> kill(std::int32_t pid, const std::function<bool()>& still) override {
    if (unkillable) return tl::unexpected(*unkillable);
    if (before_kill) before_kill(pid);
    if (still()) killed.insert(pid);
    return killed.count(pid) != 0;
  }
  std::function<void(std::int32_t)> before_kill;  // runs between a verdict and its signal
  std::optional<Error> unkillable;  // set: no process can be pinned, so none can be killed
  std::set<std::int32_t> killed;
  std::map<std::int32_t, std::vector<std::string>> sees;  // the slices of the process's container
};

class FakeContainers final : public Containers {
 public:
  [[nodiscard]] Result<std::vector<PodProcess>> processes() const override {
    if (unseen) return fail(Code::kUnavailable, "too many open files");
    std::vector<PodProcess> all;
    for (const auto& [pid, process] : alive) all.push_back(process);
    return all;
  }
  [[nodiscard]] std::optional<PodProcess> process(std::int32_t pid) const override {
    const auto found = alive.find(pid);
    return found == alive.end() ? std::nullopt : std::optional(found->second);
  }
  Result<void> freeze(const std::string& group, bool on) override {
    if (group == "gone") return fail(Code::kNotFound, "no such cgroup");
    if (on) frozen.insert(group);
    if (!on) frozen.erase(group);
    return {};
  }
  void add(std::int32_t pid, const std::string& pod, const std::string& group = {}) { alive[pid] = {pid, pod, group}; }
  bool unseen = false;  // the processes cannot be listed now
  std::map<std::int32_t, PodProcess> alive;
  std::set<std::string> frozen;
};

}  // namespace carve::agent::fakes
