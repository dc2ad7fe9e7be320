#include "app/node/node_status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/events/event_recorder.h"
#include "app/node/labels.h"
#include "app/node/totals.h"

namespace carve::node {
namespace {

constexpr std::string_view kNodes = "/api/v1/nodes";
constexpr std::string_view kAlwaysTold = "RuntimeWithoutCDI";

/// The totals that belong to agents after the wish is written: those that it sets, and earlier ones that still exist.
std::set<std::string> own_totals(const NodeWish& wish, const codec::NodeObject& node) {
  auto own = totals_set_on(node);
  std::erase_if(own, [&](const std::string& name) { return !node.capacity.contains(name); });
  for (const auto& [name, value] : wish.totals) {
    if (value) own.insert(name);
  }
  return own;
}

}  // namespace

void NodeStatus::run_watch(const std::stop_token& stop) {
  KubeSink sink;
  sink.replace = [this](const std::vector<std::string>& objects) { replace(objects); };
  sink.change = [this](const KubeChange& one) { change(one); };
  sink.trouble = [](const Error&) {};
  api_.watch(std::string(kNodes), {{"fieldSelector", "metadata.name=" + node_}}, sink, stop);
}

void NodeStatus::learn(const std::string& object) {
  if (auto node = codec::parse_node_object(object); node && node->name == node_)
    seen_ = std::move(*node);
}

void NodeStatus::replace(const std::vector<std::string>& objects) {
  const MutexLock lock(mutex_);
  seen_.reset();
  for (const auto& object : objects) learn(object);
}

void NodeStatus::change(const KubeChange& change) {
  const MutexLock lock(mutex_);
  if (change.kind == KubeChange::Kind::kDeleted) {
    seen_.reset();
  } else {
    learn(change.object);
  }
}

std::optional<codec::NodeObject> NodeStatus::seen() const {
  const MutexLock lock(mutex_);
  return seen_;
}

bool NodeStatus::due(const char* kind) {
  const auto now = clock_.now();
  auto& next = next_[kind];
  if (now < next) {
    waiting_ = true;
    return false;
  }
  next = now + kGap;
  return true;
}

Result<void> NodeStatus::patch(const std::string& path, KubePatch kind, const std::string& body) {
  CARVE_TRY(const auto written, api_.patch(path, kind, body));
  const MutexLock lock(mutex_);
  learn(written);
  return {};
}

Result<bool> NodeStatus::touch() {
  const auto now = clock_.now();
  if (!touch_ || now < next_touch_) return false;
  next_touch_ = now + kTouchGap;
  touch_ = false;
  // The nanoseconds make it a new value even within one second.
  const auto value = fmt::format("{} {}", events::rfc3339(clock_.wall_now()),
                                 clock_.wall_now().time_since_epoch().count() % 1'000'000'000);
  const auto path = fmt::format("{}/{}", kNodes, node_);
  auto done = patch(path, KubePatch::kMerge, codec::node_annotation_patch(kTouched, value));
  if (!done) {
    touch_ = true;
    return tl::unexpected(std::move(done.error()));
  }
  return true;
}

Result<void> NodeStatus::tell(const codec::NodeCondition& condition) {
  const auto node = seen();
  if (!node) return fail(Code::kUnavailable, "Node " + node_ + " is not known yet");
  const auto there = node->conditions.find(condition.type);
  const bool same = there == node->conditions.end() ? !condition.on : there->second == condition;
  if (same) return {};
  return patch(fmt::format("{}/{}/status", kNodes, node_), KubePatch::kStrategic,
               codec::node_conditions_patch({condition}, *node, events::rfc3339(clock_.wall_now())));
}

std::vector<codec::NodeCondition> NodeStatus::due_conditions(const NodeWish& wish,
                                                             const codec::NodeObject& node) {
  std::vector<codec::NodeCondition> due;
  const auto now = clock_.now();
  for (const auto& wanted : wish.conditions) {
    if (!wanted.on) {
      on_since_.erase(wanted.type);
    } else if (now - on_since_.emplace(wanted.type, now).first->second < kLasting) {
      waiting_ = true;
      continue;
    }
    const auto there = node.conditions.find(wanted.type);
    if (there == node.conditions.end() ? wanted.on || wanted.type == kAlwaysTold
                                       : !(there->second == wanted))
      due.push_back(wanted);
  }
  return due;
}

Result<void> NodeStatus::write_down(const std::set<std::string>& totals) {
  const auto names = totals.empty() ? std::optional<std::string>() : fmt::format("{}", fmt::join(totals, ","));
  return patch(fmt::format("{}/{}", kNodes, node_), KubePatch::kMerge,
               codec::node_annotations_patch({{kTotalsSet, names}}));
}

Result<bool> NodeStatus::step(const NodeWish& wish) {
  const auto node = seen();
  if (!node) return fail(Code::kUnavailable, "Node " + node_ + " is not known yet");
  waiting_ = touch_;
  const auto path = fmt::format("{}/{}", kNodes, node_);
  if (const auto conditions = due_conditions(wish, *node);
      !conditions.empty() && due("conditions")) {
    CARVE_TRY_VOID(
        patch(path + "/status", KubePatch::kStrategic,
              codec::node_conditions_patch(conditions, *node, events::rfc3339(clock_.wall_now()))));
  }
  codec::NodeChanges labels;
  for (const auto& [key, value] : wish.labels) {
    const auto there = node->labels.find(key);
    if (there == node->labels.end() || there->second != value) labels[key] = value;
  }
  for (const auto& [key, value] : node->labels) {
    if (is_agents_label(key) && !wish.labels.contains(key)) labels[key] = std::nullopt;
  }
  if (wish.labels_known && !labels.empty() && due("labels"))
    CARVE_TRY_VOID(patch(path, KubePatch::kMerge, codec::node_labels_patch(labels)));
  codec::NodeChanges totals;
  for (const auto& [name, value] : wish.totals) {
    const auto there = node->capacity.find(name);
    const bool same = there == node->capacity.end() ? !value.has_value() : value == there->second;
    if (!same) totals[name] = value;
  }
  const auto own = own_totals(wish, *node);
  const bool written_down = own == totals_set_on(*node);
  if ((!totals.empty() || !written_down) && due("totals")) {
    // The annotation is written before totals are set and after they are removed, so it names every total that exists.
    if (!written_down) CARVE_TRY_VOID(write_down(own));
    if (!totals.empty()) CARVE_TRY_VOID(patch(path + "/status", KubePatch::kMerge, codec::node_totals_patch(totals)));
  }
  return waiting_;
}

}  // namespace carve::node
