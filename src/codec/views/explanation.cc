#include "codec/views/explanation.h"

#include <boost/json.hpp>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

json::object value_of(const PartRequest& part) {
  const Request& request = part.request;
  json::object out{{"part", part.part},
                   {"init", part.phase == Phase::kInit},
                   {"cards", request.count},
                   {"whole", request.whole},
                   {"cores", request.compute.share().hundredths()},
                   {"share", json_read::json_text(to_string(request.share))},
                   {"priority", json_read::json_text(to_string(request.priority))},
                   {"dialect", request.dialect}};
  if (request.compute.is_tflops()) out["tflops"] = request.compute.tflops();
  if (request.ceiling != CoreShare::whole()) out["core_limit"] = request.ceiling.hundredths();
  if (request.memory.is_percent()) {
    out["memory_percent"] = request.memory.percent();
  } else {
    out["memory_bytes"] = request.memory.bytes().count();
  }
  return out;
}

json::array values_of(const std::vector<RecordPart>& parts) {
  json::array out;
  for (const auto& part : parts) {
    for (const auto& card : part.cards) {
      json::object one{{"part", part.part},
                       {"card", card.card.str()},
                       {"memory_bytes", card.memory.count()},
                       {"cores", card.compute.hundredths()},
                       {"whole", part.whole},
                       {"share", json_read::json_text(to_string(part.share))},
                       {"priority", json_read::json_text(to_string(part.priority))},
                       {"dialect", part.dialect}};
      if (part.ceiling != CoreShare::whole()) one["core_limit"] = part.ceiling.hundredths();
      out.push_back(std::move(one));
    }
  }
  return out;
}

json::array values_of(const std::vector<ClaimExplanation>& claims) {
  json::array out;
  for (const auto& one : claims) {
    out.push_back(json::object{{"claim", one.claim},
                               {"request", one.request},
                               {"asks", one.asks},
                               {"device", one.device},
                               {"state", one.state}});
  }
  return out;
}

json::object value_of(const RankedNode& node) {
  json::array cards;
  for (const auto& card : node.cards) {
    json::array gives(card.gives.begin(), card.gives.end());
    cards.push_back(json::object{
        {"card", card.card.str()}, {"left", card.left}, {"gives", std::move(gives)}, {"mixed", card.mixed}});
  }
  return {{"node", node.node},         {"policies", node.policies},   {"score", node.score},
          {"node_left", node.left.node}, {"cards_left", node.left.cards}, {"owners", node.left.owners},
          {"cards", std::move(cards)}};
}

json::object value_of(const SmallerAsk& smaller) {
  json::object out;
  if (smaller.memory) out["memory_bytes"] = smaller.memory->count();
  if (smaller.compute) out["cores"] = *smaller.compute;
  if (smaller.cards) out["cards"] = *smaller.cards;
  return out;
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  json::array asks;
  for (const auto& part : explanation.asks) asks.push_back(value_of(part));
  json::array fits;
  for (const auto& node : explanation.fits) fits.emplace_back(node);
  json::array ranked;
  for (const auto& node : explanation.ranked) ranked.push_back(value_of(node));
  json::array refused;
  for (const auto& group : explanation.refused)
    refused.push_back(json::object{{"nodes", group.nodes}, {"why", group.why}});
  return json::serialize(json::object{{"namespace", explanation.namespace_name},
                                      {"name", explanation.name},
                                      {"node", explanation.node},
                                      {"state", explanation.state},
                                      {"ended", explanation.ended},
                                      {"wrong", explanation.wrong},
                                      {"asks", std::move(asks)},
                                      {"holds", values_of(explanation.holds)},
                                      {"claims", values_of(explanation.claims)},
                                      {"epoch", explanation.epoch},
                                      {"policy", explanation.policy},
                                      {"nodes", explanation.nodes},
                                      {"fits", std::move(fits)},
                                      {"ranked", std::move(ranked)},
                                      {"refused", std::move(refused)},
                                      {"final", explanation.final},
                                      {"would_fit", value_of(explanation.smaller)},
                                      {"scheduler_says", explanation.scheduler_says},
                                      {"unread", explanation.unread}});
}

}  // namespace carve::codec
