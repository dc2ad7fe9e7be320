#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/agent/testing/fate.h"
#include "port/card_files.h"

namespace carve::agent::fakes {

/// The cards' device files in memory.
class FakeCardFiles final : public CardFiles {
 public:
  explicit FakeCardFiles(Fate& fate) : fate_(fate) {}
  Result<std::vector<std::string>> own(const std::vector<int>& minors) override {
    if (!error.empty()) return fail(Code::kFailedPrecondition, error);
    closed = minors;
    return std::exchange(opened, {});
  }
  Result<void> give(const std::string& slice, std::uint32_t user, const std::vector<int>& minors) override {
    if (!error.empty()) return fail(Code::kFailedPrecondition, error);
    fate_.before();
    given[slice] = {user, minors};
    return {};
  }
  Result<void> withdraw(const std::string& slice) override {
    given.erase(slice);
    return {};
  }
  Result<std::vector<std::string>> list() override {
    std::vector<std::string> slices;
    for (const auto& [slice, nodes] : given) slices.push_back(slice);
    return slices;
  }
  [[nodiscard]] std::string folder_of(const std::string& slice) const override { return "/dev/carve/" + slice; }
  [[nodiscard]] std::uint32_t mode() const override { return 0600; }
  [[nodiscard]] std::uint32_t group() const override { return 0; }

  std::string error;
  std::vector<int> closed;
  std::vector<std::string> opened;  // by another program; reported once
  std::map<std::string, std::pair<std::uint32_t, std::vector<int>>> given;  // user, cards

 private:
  Fate& fate_;
};

}  // namespace carve::agent::fakes
