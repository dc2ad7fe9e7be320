#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/agent/testing/fate.h"
#include "port/cgroups.h"

namespace carve::agent::fakes {

class FakeCgroups final : public Cgroups {
 public:
  explicit FakeCgroups(Fate& fate) : fate_(fate) {}
  Result<void> create(const std::string& id) override {
    fate_.before();
    groups[id];
    return {};
  }
  Result<void> join(const std::string& id, std::int32_t pid) override {
    fate_.before();
    groups.at(id).insert(pid);
    ran.insert(id);
    return {};
  }
  Result<void> expel(const std::string& id, std::int32_t pid) override {
    groups.at(id).erase(pid);
    return {};
  }
  Result<bool> populated(const std::string& id) override {
    if (unreadable) return tl::unexpected(*unreadable);
    const auto found = groups.find(id);
    if (found == groups.end()) return fail(Code::kNotFound, "no cgroup");
    return !found->second.empty();
  }
  Result<bool> has_run(const std::string& id) override { return ran.count(id) != 0; }
  Result<std::vector<std::int32_t>> pids(const std::string& id) override {
    return std::vector<std::int32_t>(groups[id].begin(), groups[id].end());
  }
  Result<void> freeze(const std::string& id, bool on) override {
    if (on) frozen.insert(id);
    if (!on) frozen.erase(id);
    return {};
  }
  Result<void> kill(const std::string& id) override {
    groups[id].clear();
    return {};
  }
  Result<void> remove(const std::string& id) override {
    fate_.before();
    groups.erase(id);
    return {};
  }
  Result<std::vector<std::string>> list() override {
    std::vector<std::string> ids;
    for (const auto& [id, members] : groups) ids.push_back(id);
    return ids;
  }
  void wait_change(std::chrono::milliseconds) override {}
  void wake() override {}
  [[nodiscard]] std::string slice_of(std::int32_t pid) const override {
    for (const auto& [id, members] : groups) {
      if (members.count(pid) != 0) return id;
    }
    return {};
  }
  std::map<std::string, std::set<std::int32_t>> groups;
  std::set<std::string> ran;
  std::set<std::string> frozen;
  std::optional<Error> unreadable;  // set: the cgroups cannot be read now

 private:
  Fate& fate_;
};

}  // namespace carve::agent::fakes
