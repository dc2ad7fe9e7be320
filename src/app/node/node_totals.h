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
#include "codec/dialects/dialect.h"
#include "codec/node/node_object.h"
#include "port/kube_api.h"

namespace carve::node {

/// The totals (totals.h) that this agent's Node has to show. They have the installation's names and are constant: use
/// does not reduce them, nor does a missing card. A name that a DeviceClass maps, or that another device plugin serves,
/// gets no total. Totals that an agent with other settings set are removed. For one thread.
class NodeTotals {
 public:
  struct World {
    KubeApi& api;
    const Clock& clock;
    std::vector<std::string> names;
    codec::DialectSettings dialects = {};
    // Resource names of other registered device plugins, with the number of their devices; unset: none.
    std::function<std::map<std::string, std::size_t>()> plugins = {};
  };
  explicit NodeTotals(World world) : world_(std::move(world)) {}

  /// The totals to set and (nullopt) to remove. Writes to `facts` which totals are not set, and why.
  ///   node   as the API server has it; nullopt: not known yet
  ///   cost   reads the DeviceClasses every ten seconds
  [[nodiscard]] codec::NodeChanges wanted(const GpuInventory& cards, const std::optional<codec::NodeObject>& node,
                                          NodeFacts* facts);

 private:
  void read_device_classes();
  [[nodiscard]] codec::NodeChanges to_withdraw(const codec::NodeObject& node,
                                               const std::map<std::string, std::size_t>& plugins) const;

  World world_;
  std::size_t most_cards_ = 0;
  std::optional<std::set<std::string>> mapped_;  // resource names that DeviceClasses map; nullopt: not read yet
  std::string classes_error_ = "not read yet";
  Clock::Time next_classes_{};
};

}  // namespace carve::node
