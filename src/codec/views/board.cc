#include "codec/views/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <unordered_map>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

/// "2026-11-27T12:00:00Z" as milliseconds since 1970; 0: not such a time.
std::int64_t unix_ms_of(const std::string& rfc3339) {
  std::tm parts = {};
  const char* end = ::strptime(rfc3339.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  return end == nullptr ? 0 : static_cast<std::int64_t>(::timegm(&parts)) * 1000;
}

double rounded(double percent) { return std::round(percent * 10) / 10; }

template <class Value>
json::value or_null(const std::optional<Value>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}
json::value or_null(const std::optional<Bytes>& value) { return value ? json::value(value->count()) : nullptr; }
json::value or_null(const std::optional<double>& value) { return value ? json::value(rounded(*value)) : nullptr; }

json::value value_of(const BoardCard& card) {
  return json::object{{"uuid", card.uuid},
                      {"node", card.node},
                      {"index", card.index},
                      {"model", card.model},
                      {"driver_version", card.driver},
                      {"healthy", card.healthy},
                      {"reason", card.reason},
                      {"closed", card.closed},
                      {"mode", card.mode},
                      {"memory_bytes", json::object{{"total", card.memory.count()},
                                                    {"granted", card.granted.count()},
                                                    {"free", card.free.count()},
                                                    {"used", or_null(card.used)}}},
                      {"cores", json::object{{"total", card.cores},
                                             {"granted", card.cores_granted},
                                             {"free", card.cores_free},
                                             {"delivered", or_null(card.delivered_percent)}}},
                      {"utilization_percent", or_null(card.utilization_percent)},
                      {"temperature_celsius", or_null(card.temperature_c)},
                      {"power_watts", or_null(card.power_w)},
                      {"slices", card.slices},
                      {"foreign_processes", card.foreign}};
}

json::value value_of(const BoardSlice& slice) {
  return json::object{
      {"id", slice.id},
      {"node", slice.node},
      {"card", slice.card},
      {"namespace", slice.namespace_name},
      {"pod", slice.pod},
      {"container", slice.container},
      {"name", slice.name},
      {"kind", slice.kind},
      {"agent_id", slice.agent_id},
      {"memory_bytes", json::object{{"limit", slice.memory.count()}, {"used", or_null(slice.used)}}},
      {"cores", json::object{{"guaranteed", slice.cores},
                             {"limit", slice.core_limit},
                             {"delivered", or_null(slice.delivered_percent)}}},
      {"whole", slice.whole},
      {"share", slice.share},
      {"priority", slice.priority},
      {"dialect", slice.dialect},
      {"state", slice.state},
      {"processes", or_null(slice.processes)}};
}

json::value value_of(const BoardNode& node) {
  return json::object{
      {"name", node.name},
      {"answers", node.answers},
      {"error", node.error},
      {"cards", node.cards},
      {"unhealthy", node.unhealthy},
      {"slices", node.slices},
      {"models", json::array(node.models.begin(), node.models.end())},
      {"memory_bytes",
       json::object{{"total", node.memory.count()}, {"granted", node.granted.count()}, {"used", or_null(node.used)}}},
      {"cores",
       json::object{
           {"total", node.cores}, {"granted", node.cores_granted}, {"delivered", or_null(node.delivered_percent)}}}};
}

json::value value_of(const WaitingPod& pod) {
  return json::object{{"namespace", pod.namespace_name}, {"name", pod.name}, {"asks", pod.asks}, {"why", pod.why}};
}

json::value value_of(const BoardEvent& event) {
  return json::object{{"unix_ms", event.unix_ms}, {"node", event.node},   {"namespace", event.namespace_name},
                      {"kind", event.kind},       {"slice", event.slice}, {"text", event.text}};
}

json::object totals_of(const Board& board) {
  Bytes memory;
  Bytes granted;
  Bytes free;
  Bytes used;
  std::uint64_t cores = 0;
  std::uint64_t cores_granted = 0;
  std::uint64_t cores_free = 0;
  double delivered = 0;
  std::uint64_t unhealthy = 0;
  std::uint64_t unknown = 0;
  for (const auto& card : board.cards) {
    memory += card.memory;
    granted += card.granted;
    free += card.free;
    used += card.used.value_or(Bytes());
    cores += card.cores;
    cores_granted += card.cores_granted;
    cores_free += card.cores_free;
    delivered += card.delivered_percent.value_or(0);
    unhealthy += card.healthy ? 0 : 1;
    unknown += card.used ? 0 : 1;
  }
  return {
      {"nodes", board.nodes.size()},
      {"cards", board.cards.size()},
      {"unhealthy", unhealthy},
      {"slices", board.slices.size()},
      {"waiting", board.waiting.size()},
      {"cards_with_unknown_use", unknown},
      {"memory_bytes",
       json::object{
           {"total", memory.count()}, {"granted", granted.count()}, {"free", free.count()}, {"used", used.count()}}},
      {"cores",
       json::object{
           {"total", cores}, {"granted", cores_granted}, {"free", cores_free}, {"delivered", rounded(delivered)}}}};
}

json::value value_of(const BoardModel& model) {
  json::array shapes;
  for (const auto& shape : model.shapes)
    shapes.push_back(json::object{{"parts", shape.parts}, {"fit", shape.fit}, {"in_one_piece", shape.in_one_piece}});
  return json::object{{"model", model.model},
                      {"cards", model.cards},
                      {"unhealthy", model.unhealthy},
                      {"empty", model.empty},
                      {"memory_bytes", json::object{{"total", model.memory.count()},
                                                    {"granted", model.granted.count()},
                                                    {"free", model.free.count()},
                                                    {"largest_request", model.largest_memory.count()}}},
                      {"cores", json::object{{"free", model.cores_free}, {"largest_request", model.largest_cores}}},
                      {"shapes", std::move(shapes)}};
}

json::value value_of(const BoardNamespace& one) {
  return json::object{{"name", one.name},
                      {"slices", one.slices},
                      {"waiting", one.waiting},
                      {"slices_with_unknown_use", one.unknown},
                      {"memory_bytes", json::object{{"granted", one.memory.count()}, {"used", one.used.count()}}},
                      {"cores", json::object{{"granted", one.cores}, {"delivered", rounded(one.delivered_percent)}}}};
}

template <class Item>
json::array array_of(const std::vector<const Item*>& items) {
  json::array array;
  array.reserve(items.size());
  for (const auto* item : items) array.push_back(value_of(*item));
  return array;
}

template <class Item>
json::array array_of(const std::vector<Item>& items) {
  json::array array;
  for (const auto& item : items) array.push_back(value_of(item));
  return array;
}

json::array texts(const std::vector<std::string>& all) { return json::array(all.begin(), all.end()); }

// The places of items as texts, which sort like the items on the board: names contain no character below "!" + 1.
constexpr std::string_view kAfter = "after:";
std::string place_of(const BoardCard& card) { return fmt::format("{}!{:06}!{}", card.node, card.index, card.uuid); }
const std::string& place_of(const BoardSlice& slice) { return slice.id; }
const std::string& place_of(const BoardNode& node) { return node.name; }
std::string place_of(const WaitingPod& pod) { return fmt::format("{}!{}", pod.namespace_name, pod.name); }
std::string place_of(const BoardEvent& event) {
  return fmt::format("{:015}!{}!{}!{}!{:016x}", event.unix_ms, event.node, event.slice, event.kind,
                     std::hash<std::string>()(event.text));
}

/// How many slices of 1/parts of a card fit into this free room.
std::uint64_t fitting(Bytes card, Bytes free, std::uint64_t cores_free, std::uint32_t parts) {
  const std::uint64_t memory = card.count() / parts;
  const std::uint64_t cores = 100 / parts;
  if (memory == 0) return 0;
  return std::min(free.count() / memory, cores_free / cores);
}

}  // namespace

bool before(const BoardEvent& a, const BoardEvent& b) {
  return a.unix_ms != b.unix_ms ? a.unix_ms < b.unix_ms : place_of(a) < place_of(b);
}

Result<BoardEvent> parse_board_event(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "Event"));
  BoardEvent event;
  event.kind = json_read::text(value, "reason");
  event.text = json_read::text(value, "message");
  if (event.kind.empty()) return fail(Code::kInvalidArgument, "Event: it has no reason");
  event.node = json_read::text(value, "source.host");
  const auto kind = json_read::text(value, "involvedObject.kind");
  event.slice = kind + "/" + json_read::text(value, "involvedObject.name");
  if (kind != "Node") event.namespace_name = json_read::text(value, "involvedObject.namespace");
  event.unix_ms = unix_ms_of(json_read::text(value, "lastTimestamp"));
  return event;
}

void sum_nodes(Board* board) {
  std::unordered_map<std::string_view, BoardNode*> nodes;
  for (auto& node : board->nodes) {
    node.cards = node.unhealthy = node.slices = node.cores = node.cores_granted = 0;
    node.models.clear();
    node.memory = node.granted = Bytes();
    node.used = Bytes();
    node.delivered_percent = 0;
    nodes.emplace(node.name, &node);
  }
  for (const auto& card : board->cards) {
    const auto found = nodes.find(card.node);
    if (found == nodes.end()) continue;
    BoardNode& node = *found->second;
    ++node.cards;
    node.unhealthy += card.healthy ? 0 : 1;
    node.slices += card.slices;
    if (std::find(node.models.begin(), node.models.end(), card.model) == node.models.end())
      node.models.push_back(card.model);
    node.memory += card.memory;
    node.granted += card.granted;
    node.cores += card.cores;
    node.cores_granted += card.cores_granted;
    node.used = node.used && card.used ? std::optional(*node.used + *card.used) : std::nullopt;
    node.delivered_percent = node.delivered_percent && card.delivered_percent
                                 ? std::optional(*node.delivered_percent + *card.delivered_percent)
                                 : std::nullopt;
  }
}

std::vector<BoardModel> models_of(const Board& board) {
  constexpr std::uint32_t kParts[] = {1, 2, 4, 8};
  std::map<std::string, BoardModel> models;
  for (const auto& card : board.cards) {
    auto& model = models[card.model];
    model.model = card.model;
    ++model.cards;
    model.unhealthy += card.healthy ? 0 : 1;
    model.empty += card.healthy && card.slices == 0 ? 1 : 0;
    model.memory += card.memory;
    model.granted += card.granted;
    model.free += card.free;
    model.cores_free += card.cores_free;
    model.largest_memory = std::max(model.largest_memory, card.free);
    model.largest_cores = std::max(model.largest_cores, card.cores_free);
    if (model.shapes.empty()) {
      for (const auto parts : kParts) model.shapes.push_back({parts});
    }
    for (auto& shape : model.shapes) shape.fit += fitting(card.memory, card.free, card.cores_free, shape.parts);
  }
  std::vector<BoardModel> all;
  for (auto& [name, model] : models) {
    for (auto& shape : model.shapes) {
      const Bytes card(model.memory.count() / model.cards);
      shape.in_one_piece = fitting(card, model.free, model.cores_free, shape.parts);
    }
    all.push_back(std::move(model));
  }
  return all;
}

std::vector<BoardNamespace> namespaces_of(const Board& board) {
  std::map<std::string, BoardNamespace> by_name;
  for (const auto& slice : board.slices) {
    auto& one = by_name[slice.namespace_name];
    ++one.slices;
    one.memory += slice.memory;
    one.used += slice.used.value_or(Bytes());
    one.cores += slice.cores;
    one.delivered_percent += slice.delivered_percent.value_or(0);
    one.unknown += slice.used ? 0 : 1;
  }
  for (const auto& pod : board.waiting) ++by_name[pod.namespace_name].waiting;
  std::vector<BoardNamespace> all;
  for (auto& [name, one] : by_name) {
    one.name = name;
    all.push_back(std::move(one));
  }
  return all;
}

template <class Item>
Result<std::string> page_json(const std::vector<const Item*>& items, std::uint64_t revision, const BoardPage& page) {
  auto from = items.begin();
  if (!page.after.empty()) {
    if (!page.after.starts_with(kAfter))
      return fail(Code::kInvalidArgument, "continue: \"" + page.after + "\" is not the `continue` of a page");
    const std::string after = page.after.substr(kAfter.size());
    from = std::upper_bound(items.begin(), items.end(), after,
                            [](const std::string& place, const Item* item) { return place < place_of(*item); });
  }
  const auto shown = std::min(page.most, static_cast<std::size_t>(items.end() - from));
  const auto end = from + static_cast<std::ptrdiff_t>(shown);
  json::array array;
  array.reserve(shown);
  for (auto item = from; item != end; ++item) array.push_back(value_of(**item));
  const bool more = end != items.end() && shown > 0;
  return json::serialize(
      json::object{{"revision", revision},
                   {"total", items.size()},
                   {"items", std::move(array)},
                   {"continue", more ? std::string(kAfter) + place_of(**std::prev(end)) : std::string()}});
}
template Result<std::string> page_json(const std::vector<const BoardCard*>&, std::uint64_t, const BoardPage&);
template Result<std::string> page_json(const std::vector<const BoardSlice*>&, std::uint64_t, const BoardPage&);
template Result<std::string> page_json(const std::vector<const BoardNode*>&, std::uint64_t, const BoardPage&);
template Result<std::string> page_json(const std::vector<const WaitingPod*>&, std::uint64_t, const BoardPage&);
template Result<std::string> page_json(const std::vector<const BoardEvent*>&, std::uint64_t, const BoardPage&);

std::string summary_json(const Board& board, std::uint64_t revision) {
  return json::serialize(json::object{{"scope", board.scope},
                                      {"revision", revision},
                                      {"notice", board.notice},
                                      {"totals", totals_of(board)},
                                      {"models", array_of(models_of(board))},
                                      {"namespaces", array_of(namespaces_of(board))}});
}

std::string change_json(const Board& board, const BoardChange& change) {
  json::object text{{"revision", change.revision},
                    {"complete", change.complete},
                    {"scope", board.scope},
                    {"notice", board.notice},
                    {"nodes", array_of(change.nodes)},
                    {"cards", array_of(change.cards)},
                    {"slices", array_of(change.slices)},
                    {"gone", json::object{{"nodes", texts(change.gone_nodes)},
                                          {"cards", texts(change.gone_cards)},
                                          {"slices", texts(change.gone_slices)}}},
                    {"totals", totals_of(board)},
                    {"models", array_of(models_of(board))},
                    {"namespaces", array_of(namespaces_of(board))}};
  if (change.rest || change.complete) {
    text["waiting"] = array_of(board.waiting);
    text["events"] = array_of(board.events);
  }
  return json::serialize(text);
}

}  // namespace carve::codec
