// Decisions about a cluster on record, see base/testing/decisions.h: the node, the refusals, the smaller requests and
// the victims. The other tests of this folder check rules.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/testing/decisions.h"
#include "core/cluster/cluster.h"
#include "core/cluster/room.h"
#include "core/cluster/what_if.h"
#include "core/testing/pseudorandom.h"

namespace carve {
namespace {

/// A few nodes on which pods come and go.
class Cluster {
 public:
  Cluster(std::uint64_t seed, std::size_t nodes) : numbers_(seed) {
    for (std::size_t i = 0; i < nodes; ++i) {
      const std::string name = "n" + std::to_string(i);
      auto node = std::make_shared<NodeState>();
      std::vector<CardId> ids;
      for (std::uint64_t card = 1 + numbers_.below(3); card > 0; --card) {
        const Card made = pseudorandom_card(name + "-" + std::to_string(card), numbers_);
        ids.push_back(made.id);
        EXPECT_TRUE(node->ledger.put_card(made).has_value());
      }
      node->links = LinkMatrix(ids);
      state_.put(name, node);
      names_.push_back(name);
    }
    candidates_.allowed = {0, 1};
  }

  void play(int pods, Decisions& decisions) {
    for (int i = 0; i < pods; ++i) {
      change_node();
      place_next({OwnerKind::kPod, "pod-" + std::to_string(i)}, decisions);
      if (!placed_.empty() && numbers_.one_of(5)) end_pod();
    }
  }

 private:
  struct Placed {
    Owner owner;
    std::string node;
  };

  template <class Change>
  void edit(const std::string& name, const Change& change) {
    auto node = std::make_shared<NodeState>(*state_.at(name));
    change(*node);
    state_.put(name, node);
  }

  void change_node() {
    if (!numbers_.one_of(8)) return;
    const std::string name = names_[numbers_.below(names_.size())];
    const std::uint64_t kind = numbers_.below(3);
    edit(name, [&](NodeState& node) {
      if (kind == 0) node.closed = node.closed.empty() ? "its agent is leaving" : "";
      if (kind == 1) node.closed_to["native"] = node.closed_to["native"].empty() ? "no such resource" : "";
      const Card& first = node.ledger.cards()[0].card;
      const Health other = first.health.ok ? Health{false, "it was lost"} : Health{};
      if (kind == 2) static_cast<void>(node.ledger.set_health(first.id, other));
    });
  }

  void place_next(const Owner& owner, Decisions& decisions) {
    const std::vector<PartRequest> parts = pseudorandom_pod(numbers_);
    const PolicyRow& policy = **policy_named(numbers_.one_of(2) ? "spread" : "binpack");
    const auto priority = static_cast<std::int32_t>(numbers_.below(5));
    const Fit fits = fit(state_, owner, parts, names_, policy, priority);
    for (const FittingNode& one : fits.nodes) {
      decisions.add(one.node);
      decisions.add({static_cast<std::uint64_t>(one.score)});
    }
    for (const RefusedNode& one : fits.refused) decisions.add(one.node + (one.final ? " never: " : ": ") + one.why);
    decisions.add(explain(fits.refused, 1 + numbers_.below(5)));
    if (const FittingNode* chosen = choose_node(fits.nodes)) return bind(owner, parts, policy, chosen->node, priority);
    const SmallerAsk smaller = what_would_fit(state_, owner, parts, names_, policy);
    decisions.add({smaller.memory ? smaller.memory->count() : 1, smaller.compute.value_or(1'000),
                   smaller.cards.value_or(1'000)});
    const auto same = [&policy](const std::string&) -> const PolicyRow& { return policy; };
    const FoundRoom room = find_room(state_, owner, parts, priority, names_, same, candidates_);
    decisions.add({static_cast<std::uint64_t>(room.room), room.plan.cost.violations, room.plan.cost.count});
    decisions.add(room.node);
    for (const Holder& victim : room.plan.victims) decisions.add(victim.owner.uid);
  }

  void bind(const Owner& owner, const std::vector<PartRequest>& parts, const PolicyRow& policy, const std::string& name,
            std::int32_t priority) {
    edit(name, [&](NodeState& node) {
      const auto slices = place_pod(node.ledger, node.links, owner, parts, policy);
      ASSERT_TRUE(slices && node.ledger.add(*slices).has_value());
    });
    placed_.push_back({owner, name});
    if (numbers_.one_of(6)) candidates_.going.insert(owner);
    candidates_.holders[name].push_back({owner, priority, static_cast<std::int64_t>(numbers_.below(20)),
                                         numbers_.one_of(4) ? std::vector<std::size_t>{numbers_.below(2)}
                                                            : std::vector<std::size_t>{}});
  }

  void end_pod() {
    const std::size_t at = numbers_.below(placed_.size());
    const Placed gone = placed_[at];
    placed_.erase(placed_.begin() + static_cast<std::ptrdiff_t>(at));
    candidates_.going.erase(gone.owner);
    std::erase_if(candidates_.holders[gone.node], [&](const Holder& one) { return one.owner == gone.owner; });
    edit(gone.node, [&](NodeState& node) { node.ledger.remove_owner(gone.owner); });
  }

  Numbers numbers_;
  ClusterState state_;
  std::vector<std::string> names_;
  std::vector<Placed> placed_;
  PreemptionCandidates candidates_;
};

TEST(ClusterDecisions, AreThoseOnRecord) {
  Decisions decisions("cluster");
  Cluster(1, 8).play(120, decisions);
  EXPECT_EQ(decisions.sum(), 0x4e4d1b8598d3627aULL) << "other decisions; see base/testing/decisions.h";
}

}  // namespace
}  // namespace carve
