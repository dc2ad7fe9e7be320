#include "app/control/state/unhealthy_cards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "codec/cluster/notes.h"
#include "codec/dialects/gpushare_unhealthy.h"

namespace carve::control {

KubeSink UnhealthyCards::sink() {
  return {[this](const std::vector<std::string>& all) { replace(all); },
          [this](const KubeChange& change) {
            change.kind == KubeChange::Kind::kPut ? apply(change.object) : remove(change.object);
          },
          [this](const Error&) { answered_ = true; }};
}

void UnhealthyCards::replace(const std::vector<std::string>& all) {
  std::set<std::string> nodes;
  for (const auto& config_map : all) {
    nodes.insert(codec::node_of_unhealthy_gpus(codec::read_object_name(config_map).name));
    apply(config_map);
  }
  std::vector<std::string> unmarked;
  for (const auto& [node, indexes] : marked_) {
    if (!nodes.contains(node)) unmarked.push_back(node);
  }
  for (const auto& node : unmarked) mark(node, {});
  std::erase_if(refused_, [&](const auto& one) { return !nodes.contains(one.first); });
  answered_ = true;
}

void UnhealthyCards::remove(const std::string& config_map) {
  const auto node = codec::node_of_unhealthy_gpus(codec::read_object_name(config_map).name);
  if (node.empty()) return;
  refused_.erase(node);
  mark(node, {});
}

void UnhealthyCards::apply(const std::string& config_map) {
  auto name = codec::read_object_name(config_map);
  const auto node = codec::node_of_unhealthy_gpus(name.name);
  if (node.empty()) return;
  const auto text = codec::config_map_value(config_map, codec::kUnhealthyGpusKey);
  auto read = codec::parse_unhealthy_gpus(text);
  if (read) {
    refused_.erase(node);
    return mark(node, std::move(*read));
  }
  mark(node, {});
  const auto said = refused_.find(node);
  if (said != refused_.end() && said->second == text) return;
  refused_[node] = text;
  log_.error("no card is marked: the list of unhealthy cards is invalid",
             {{"configmap", name.namespace_name + "/" + name.name}, {"error", read.error().what}});
  if (!post_event_) return;
  post_event_({"ConfigMap", name.namespace_name, name.name, name.uid, "UnhealthyGpusRefused",
               fmt::format("invalid list, no card of node {} is marked: {}", node, read.error().what)});
}

void UnhealthyCards::mark(const std::string& node, std::set<int> indexes) {
  const auto stored = marked_.find(node);
  if (stored == marked_.end() ? indexes.empty() : stored->second == indexes) return;
  log_.info("the operator's marks on a node's cards changed",
            {{"node", node}, {"indexes", fmt::format("{}", fmt::join(indexes, ","))}});
  if (indexes.empty()) {
    marked_.erase(stored);
  } else {
    marked_[node] = indexes;
  }
  model_.mark(node, std::move(indexes));
}

}  // namespace carve::control
