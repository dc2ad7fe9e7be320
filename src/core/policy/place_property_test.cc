// Placement on random machines: the ledger accepts every placement that place() returns; no choice of cards could serve
// a request that place() refuses; the answer depends only on the input.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "core/policy/choose.h"
#include "core/policy/place_pod.h"
#include "core/policy/policy.h"

namespace carve {
namespace {

template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(100, rc::gen::inRange<T>(low, high + 1));
}

struct Machine {
  Ledger ledger;
  LinkMatrix links;
};

Machine arbitrary_machine() {
  Machine machine;
  std::vector<CardId> ids;
  const int cards = pick(0, 6);
  for (int i = 0; i < cards; ++i) {
    Card card;
    card.id = CardId("GPU-" + std::to_string(i));
    card.model = *rc::gen::element<std::string>("NVIDIA T4", "NVIDIA H200", "Another 9000");
    card.memory = Bytes::gib(pick<std::uint64_t>(4, 16));
    card.health.ok = pick(0, 9) != 9;
    ids.push_back(card.id);
    RC_ASSERT(machine.ledger.put_card(card).has_value());
  }
  machine.links = LinkMatrix(ids);
  for (const CardId& a : ids) {
    for (const CardId& b : ids) {
      if (a < b) machine.links.set(a, b, {static_cast<LinkLevel>(pick(0, 6)), 0});
    }
  }
  return machine;
}

Request arbitrary_request() {
  const auto count = pick<std::uint32_t>(1, 3);
  Request request = whole_cards(count);
  if (pick(0, 3) != 3) {
    request = Request{};
    request.count = count;
    request.share =
        *rc::gen::element(ShareClass::kFixed, ShareClass::kBurst, ShareClass::kBestEffort);
    request.memory = pick(0, 1) == 0 ? MemoryAsk::of(Bytes::mib(pick<std::uint64_t>(1, 8000)))
                                     : MemoryAsk::of_percent(pick(1u, 100u));
    request.compute = CoreShare(pick(1u, 60u));
    if (pick(0, 5) == 5) request.compute = ComputeAsk::of_tflops(pick(1u, 80u));
    request.constraints.exclusive = pick(0, 7) == 7;
  }
  if (pick(0, 3) == 3) request.constraints.model = "h200";
  return request;
}

/// True when the ledger would accept that request on that card; tested on a copy.
bool books(const Ledger& ledger, const CardState& card, const Request& request) {
  if (!model_matches(card.card.model, request.constraints.model)) return false;
  const auto compute = request.compute.on(card.card.model);
  if (!compute) return false;
  Ledger copy = ledger;
  const Owner probe{OwnerKind::kClaim, "probe"};
  const PlacedCard placed{card.card.id, request.memory.on(card.card.memory), *compute};
  return copy.add(slices_for(probe, "p", request, {placed})).has_value();
}

RC_GTEST_PROP(PlaceHistory, PlacementsAreAcceptedAndRefusedRequestsCannotBeServed, ()) {
  Machine machine = arbitrary_machine();
  const PolicyRow& policy = kPolicies[pick<std::size_t>(0, kPolicies.size() - 1)];
  int placed_count = 0;
  for (int i = 0; i < 20; ++i) {
    const Request request = arbitrary_request();
    std::size_t could = 0;
    for (const CardState& card : machine.ledger.cards()) {
      could += books(machine.ledger, card, request) ? 1 : 0;
    }
    const Ledger before = machine.ledger;
    const auto placed = place(machine.ledger, machine.links, request, policy);
    RC_ASSERT(machine.ledger == before);
    const auto again = place(machine.ledger, machine.links, request, policy);
    const bool same = placed ? again.has_value() && *again == *placed
                             : !again && again.error().what == placed.error().what;
    RC_ASSERT(same);
    RC_ASSERT(placed.has_value() == (could >= request.count));
    if (!placed) {
      RC_ASSERT(placed.error().code == Code::kResourceExhausted ||
                placed.error().code == Code::kFailedPrecondition);
      RC_ASSERT(!placed.error().what.empty());
      continue;
    }
    ++placed_count;
    std::set<CardId> distinct;
    for (const PlacedCard& card : *placed) distinct.insert(card.card);
    RC_ASSERT(distinct.size() == request.count && placed->size() == request.count);
    const Owner owner{OwnerKind::kLocal, "u" + std::to_string(i)};
    RC_ASSERT(machine.ledger.add(slices_for(owner, "main", request, *placed)).has_value());
    RC_ASSERT(machine.ledger.audit().has_value());
    if (pick(0, 3) == 3) {
      machine.ledger.remove_owner({OwnerKind::kLocal, "u" + std::to_string(pick(0, i))});
    }
  }
  RC_CLASSIFY(placed_count >= 3, "at least 3 placed");
}

/// "Never" is returned exactly when an empty, healthy machine could not serve the request either.
RC_GTEST_PROP(PlaceHistory, NeverIsReturnedExactlyWhenAnEmptyHealthyMachineCannotServe, ()) {
  Machine machine = arbitrary_machine();
  const Request request = arbitrary_request();
  Ledger empty;
  for (const CardState& card : machine.ledger.cards()) {
    Card healthy = card.card;
    healthy.health = {};
    RC_ASSERT(empty.put_card(healthy).has_value());
  }
  for (int i = 0; i < 8; ++i) {
    const Request other = arbitrary_request();
    if (const auto at = place(machine.ledger, machine.links, other, kPolicies[1])) {
      RC_ASSERT(
          machine.ledger.add(slices_for({OwnerKind::kLocal, std::to_string(i)}, "main", other, *at))
              .has_value());
    }
  }
  const bool ever = place(empty, machine.links, request, kPolicies[0]).has_value();
  const auto now = place(machine.ledger, machine.links, request, kPolicies[0]);
  if (!now) RC_ASSERT((now.error().code == Code::kResourceExhausted) == ever);
}

/// The exact search against every subset, enumerated by bit masks.
RC_GTEST_PROP(ChooseSet, IsTheBestConnectedSet, ()) {
  const Machine machine = arbitrary_machine();
  const auto& cards = machine.ledger.cards();
  RC_PRE(cards.size() >= 2u);
  std::vector<Candidate> candidates;
  for (const CardState& card : cards) candidates.push_back({&card.card.id, pick(0, 3)});
  const auto count = pick<std::size_t>(2, cards.size());
  Connection best;
  std::int64_t best_score = 0;
  std::vector<std::size_t> best_set;
  for (unsigned mask = 0; mask < 1u << cards.size(); ++mask) {
    std::vector<std::size_t> set;
    Connection connection;
    std::int64_t score = 0;
    for (std::size_t i = 0; i < cards.size(); ++i) {
      if ((mask >> i & 1) == 0) continue;
      for (const std::size_t j : set) {
        const Link link = machine.links.between(cards[i].card.id, cards[j].card.id);
        connection.worst = std::min(connection.worst, link.level);
        connection.weight += weight_of(link);
      }
      set.push_back(i);
      score += candidates[i].score;
    }
    if (set.size() != count) continue;
    const bool better = connection != best ? connection > best : score > best_score;
    const bool equal = connection == best && score == best_score;
    if (best_set.empty() || better || (equal && set < best_set)) {
      best = connection;
      best_score = score;
      best_set = set;
    }
  }
  RC_ASSERT(choose_set(candidates, count, machine.links, true) == best_set);
}

/// More cards than the exact search accepts. The greedy search starts once at each card and then adds the best next
/// card.
RC_GTEST_PROP(ChooseSet, PrefersLinkedCardsAmongManyAndElseTheBestScores, ()) {
  const auto cards = pick<std::size_t>(17, 24);
  const auto count = pick<std::size_t>(2, 4);
  std::vector<CardId> ids;
  for (std::size_t i = 0; i < cards; ++i) ids.emplace_back("GPU-" + std::to_string(100 + i));
  LinkMatrix links(ids);
  std::vector<Candidate> candidates;
  for (const CardId& id : ids) candidates.push_back({&id, pick<std::int64_t>(-1000, 1000)});
  // Without links only the scores count.
  std::vector<std::size_t> order(cards);
  for (std::size_t i = 0; i < cards; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return candidates[a].score > candidates[b].score; });
  std::int64_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most += candidates[order[i]].score;
  for (const bool links_first : {false, true}) {
    const auto chosen = choose_set(candidates, count, links, links_first);
    RC_ASSERT(std::set(chosen.begin(), chosen.end()).size() == count);
    RC_ASSERT(std::is_sorted(chosen.begin(), chosen.end()));
    std::int64_t sum = 0;
    for (const std::size_t at : chosen) sum += candidates[at].score;
    RC_ASSERT(sum == most);
  }
  // One group of linked cards, regardless of their scores.
  std::vector<std::size_t> group;
  for (std::size_t i = pick<std::size_t>(0, 5); group.size() < count; i += pick<std::size_t>(1, 3)) group.push_back(i);
  for (const std::size_t a : group) {
    for (const std::size_t b : group) links.set(ids[a], ids[b], {LinkLevel::kNvLink, 4});
  }
  RC_ASSERT(choose_set(candidates, count, links, true) == group);
}

/// Pods of several parts, some of them grouped: the ledger accepts every placement, and a group shares its cards. A
/// refused group fits no set of cards as one request.
RC_GTEST_PROP(PlacePod, GroupsShareTheirCardsAndPlacementsAreAccepted, ()) {
  const Machine machine = arbitrary_machine();
  const Owner owner{OwnerKind::kPod, "pod"};
  const PolicyRow& policy = kPolicies[pick<std::size_t>(0, kPolicies.size() - 1)];
  const auto count = pick<std::uint32_t>(1, 2);
  std::vector<PartRequest> parts;
  Bytes sum;
  Bytes init;
  bool all_together = true;
  const int many = pick(1, 4);
  for (int i = 0; i < many; ++i) {
    PartRequest part{"p" + std::to_string(i), pick(0, 3) == 0 ? Phase::kInit : Phase::kRun, Request{}, ""};
    part.request.count = count;
    part.request.memory = MemoryAsk::of(Bytes::mib(pick<std::uint64_t>(1, 6000)));
    part.request.compute = CoreShare();
    part.request.share = ShareClass::kBestEffort;
    if (pick(0, 3) != 0) part.together = "g";
    all_together = all_together && !part.together.empty();
    const Bytes bytes = part.request.memory.bytes();
    if (part.phase == Phase::kInit) {
      init = std::max(init, bytes);
    } else {
      sum += bytes;
    }
    parts.push_back(part);
  }
  const auto placed = place_pod(machine.ledger, machine.links, owner, parts, policy);
  RC_CLASSIFY(placed.has_value(), "placed");
  if (!placed) {
    if (!all_together) return;
    Request one = parts.front().request;
    one.memory = MemoryAsk::of(std::max(sum, init));
    RC_ASSERT(!place(machine.ledger, machine.links, one, policy));
    return;
  }
  Ledger booked = machine.ledger;
  RC_ASSERT(booked.add(*placed).has_value());
  RC_ASSERT(booked.audit().has_value());
  std::set<std::set<std::string>> sets;
  for (const PartRequest& part : parts) {
    std::set<std::string> cards;
    for (const Slice& slice : *placed) {
      if (slice.part == part.part) cards.insert(slice.card.str());
    }
    RC_ASSERT(cards.size() == count);
    if (!part.together.empty()) sets.insert(cards);
  }
  RC_ASSERT(sets.size() <= 1U);
}

/// The request, on this card only.
PartRequest on_card(PartRequest part, const CardId& card) {
  part.request.constraints.cards = {card};
  return part;
}

RC_GTEST_PROP(PlacePod, TwoPartsOfOneCardArePlacedExactlyWhenSomePairOfCardsHasRoom, ()) {
  Machine machine = arbitrary_machine();
  const PolicyRow& policy = kPolicies[pick<std::size_t>(0, kPolicies.size() - 1)];
  const auto one_card = [](const std::string& name) {
    PartRequest part{name, Phase::kRun, arbitrary_request(), ""};
    part.request.count = 1;
    return part;
  };
  const int others = pick(0, 6);
  for (int i = 0; i < others; ++i) {
    const Owner other{OwnerKind::kPod, "o" + std::to_string(i)};
    if (const auto held = place_pod(machine.ledger, machine.links, other, {one_card("c")}, policy)) {
      RC_ASSERT(machine.ledger.add(*held).has_value());
    }
  }
  const Owner owner{OwnerKind::kPod, "pod"};
  const std::vector<PartRequest> parts = {one_card("a"), one_card("b")};
  bool possible = false;
  for (const CardState& a : machine.ledger.cards()) {
    for (const CardState& b : machine.ledger.cards()) {
      possible = possible || place_pod(machine.ledger, machine.links, owner,
                                       {on_card(parts[0], a.card.id), on_card(parts[1], b.card.id)}, policy);
    }
  }
  const auto placed = place_pod(machine.ledger, machine.links, owner, parts, policy);
  RC_CLASSIFY(placed.has_value(), "placed");
  RC_ASSERT(placed.has_value() == possible);
  if (placed) RC_ASSERT(machine.ledger.add(*placed).has_value());
}

}  // namespace
}  // namespace carve
