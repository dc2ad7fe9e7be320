// engine-probe: the placement engine, offline. Reads lines from stdin, in recorded order:
//   node JSON | gpu JSON | pod JSON     the object has this state from now on
//   filter JSON                         an ExtenderArgs: prints one line,
//   {"uid":…,"node":…,"cards":{"part":["uuid"]}};
//                                       node is "" when the pod fits nowhere; {"error":…} when the
//                                       line is not a valid call
// Any other line ends the program with exit status 1.
#include <boost/json.hpp>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "app/control/state/cluster_model.h"
#include "app/control/state/policy_watcher.h"
#include "codec/extender/extender.h"
#include "core/cluster/ruled_fit.h"
#include "core/policy/place_pod.h"

namespace carve {
namespace {

namespace json = boost::json;

Result<json::object> choice_of(const ClusterState& cluster, std::string_view call) {
  CARVE_TRY(const auto args, codec::parse_extender_args(call));
  CARVE_TRY(const auto parts, codec::requests_of(args.pod, {}));
  const Owner owner{OwnerKind::kPod, args.pod.uid};
  const PlacementRules rules;
  const PodPolicy policy = control::policy_of(rules, args.pod);
  json::object out{{"uid", args.pod.uid}, {"node", ""}, {"cards", json::object{}}};
  const std::vector<std::string> names(args.names.begin(), args.names.end());
  const Fit found = fit(cluster, owner, parts, names, policy);
  const FittingNode* best = choose_node(found.nodes);
  if (best == nullptr) return out;
  const NodeState& node = *cluster.at(best->node);
  CARVE_TRY(const auto slices,
            place_pod(node.ledger, node.links, owner, parts, *policy.on(node.labels).card));
  out["node"] = best->node;
  for (const Slice& slice : slices) {
    auto& cards = out["cards"].as_object()[slice.part];
    if (cards.is_null()) cards = json::array{};
    cards.as_array().emplace_back(slice.card.str());
  }
  return out;
}

int run() {
  const SystemClock clock;
  Log log([](std::string_view) {});
  control::ClusterModel model({}, clock, log);
  const auto nodes = model.nodes();
  const auto gpus = model.gpus();
  const auto pods = model.pods();
  for (std::string line; std::getline(std::cin, line);) {
    const auto blank = line.find(' ');
    const std::string kind = line.substr(0, blank);
    std::string text = blank == std::string::npos ? std::string() : line.substr(blank + 1);
    const KubeSink* sink = kind == "node"  ? &nodes
                           : kind == "gpu" ? &gpus
                           : kind == "pod" ? &pods
                                           : nullptr;
    if (sink != nullptr) {
      sink->change({KubeChange::Kind::kPut, std::move(text)});
    } else if (kind == "filter") {
      const auto chosen = choice_of(*model.snapshot(), text);
      const auto out = chosen ? *chosen : json::object{{"error", chosen.error().what}};
      std::printf("%s\n", json::serialize(out).c_str());
    } else {
      std::fprintf(stderr, "engine-probe: \"%s\" is not a known kind of line\n", kind.substr(0, 64).c_str());
      return 1;
    }
  }
  return model.stats().unreadable == 0 ? 0 : 1;
}

}  // namespace
}  // namespace carve

int main() { return carve::run(); }
