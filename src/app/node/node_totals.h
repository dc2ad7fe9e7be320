#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/node/conditions.h"
#include "base/clock.h"
#include "codec/node/node_object.h"
#include "port/kube_api.h"

namespace carve::node {

/// Which totals (totals.h) the own Node has to show now: those of the installation's names, constant, never reduced
/// because of use nor while a card is away; none of a name that a DeviceClass maps or another device plugin serves; and
/// those that an agent of other settings has set are taken away. One thread.
class NodeTotals {
 public:
  struct World {
    KubeApi& api;
    const Clock& clock;
    std::vector<std::string> names;
    Bytes gpushare_unit = Bytes::gib(1);  // of aliyun.com/gpu-mem
    // Resource names for which somebody's device plugin has registered, with its devices; unset: none.
    std::function<std::map<std::string, std::size_t>()> plugins = {};
  };
  explicit NodeTotals(World world) : world_(std::move(world)) {}

  /// What is to be set and (nullopt) taken away; in `facts` which are not set, and why.
  ///   node   as the API server has it; nullopt: not known yet
  ///   cost   reads the DeviceClasses every ten seconds
  [[nodiscard]] codec::NodeChanges wanted(const GpuInventory& cards, const std::optional<codec::NodeObject>& node,
                                          NodeFacts* facts);

 private:
  void look_for_classes();
  [[nodiscard]] codec::NodeChanges to_withdraw(const codec::NodeObject& node,
                                               const std::map<std::string, std::size_t>& plugins) const;

  World world_;
  std::size_t most_cards_ = 0;
  std::optional<std::set<std::string>> mapped_;  // resource names that a DeviceClass maps; nullopt: not read yet
  std::string classes_error_ = "not asked yet";
  Clock::Time next_classes_{};
};

}  // namespace carve::node
