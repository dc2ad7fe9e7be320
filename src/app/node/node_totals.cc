#include "app/node/node_totals.h"

#include <algorithm>
#include <utility>

#include "app/node/totals.h"
#include "codec/node/card_modes.h"
#include "codec/node/plugin_conflict.h"

namespace carve::node {
namespace {

constexpr auto kAskClasses = std::chrono::seconds(10);

}  // namespace

/// Reads the DeviceClasses. If the API server does not answer, the previous result stays.
void NodeTotals::read_device_classes() {
  const auto classes = world_.api.list("/apis/resource.k8s.io/v1/deviceclasses");
  if (!classes && classes.error().code != Code::kNotFound) {
    classes_error_ = classes.error().what;
    return;
  }
  mapped_.emplace();
  if (!classes) return;  // the API server does not know the kind
  for (const auto& text : *classes) mapped_->insert(codec::mapped_name(text));
}

/// Totals to remove, which an agent with other settings set. No agent serves them now, and a pod that requests one
/// would start without a card. If another device plugin serves the name now, its number is the kubelet's.
codec::NodeChanges NodeTotals::to_withdraw(const codec::NodeObject& node,
                                           const std::map<std::string, std::size_t>& plugins) const {
  codec::NodeChanges withdrawn;
  for (const auto& name : totals_set_on(node)) {
    const bool wanted = std::find(world_.names.begin(), world_.names.end(), name) != world_.names.end();
    if (!wanted && !plugins.contains(name)) withdrawn[name] = std::nullopt;
  }
  return withdrawn;
}

codec::NodeChanges NodeTotals::wanted(const GpuInventory& cards, const std::optional<codec::NodeObject>& node,
                                      NodeFacts* facts) {
  const auto plugins = world_.plugins ? world_.plugins() : std::map<std::string, std::size_t>();
  auto totals = node ? to_withdraw(*node, plugins) : codec::NodeChanges();
  if (world_.names.empty()) return totals;
  const auto now = world_.clock.now();
  if (now >= next_classes_) {
    next_classes_ = now + kAskClasses;
    read_device_classes();
  }
  if (!mapped_) {
    // kube-scheduler would bind a pod here for a total of a mapped name, and it would start without a device.
    facts->withheld = "totals are not set, because it is not known whether a DeviceClass maps one of the names: " +
                      classes_error_;
    return totals;
  }
  most_cards_ = std::max(most_cards_, cards.cards.size());
  for (const auto& name : world_.names) {
    if (mapped_->contains(name)) {
      totals[name] = std::nullopt;
      facts->withheld += (facts->withheld.empty() ? "" : ", ") + name + " is mapped by a DeviceClass";
    } else if (const auto other = plugins.find(name); other != plugins.end()) {
      // The kubelet writes that plugin's number, and fails pods that request more, even while it waits for a removed
      // plugin to return. So the name is left to the kubelet.
      facts->conflicting +=
          (facts->conflicting.empty() ? "" : "; ") + codec::conflict_words(name, other->second);
    } else if (cards.cards.size() == most_cards_ && most_cards_ > 0) {
      const bool shared_by_rancher = node && codec::is_shared_by_rancher(node->labels);
      auto total = total_of(name, cards.cards, world_.dialects, shared_by_rancher);
      if (total) totals[name] = std::move(*total);
    }
  }
  return totals;
}

}  // namespace carve::node
