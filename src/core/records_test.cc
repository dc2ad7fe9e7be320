// More decisions of core on record, see base/testing/decisions.h. policy, cluster and history have scenes of their own;
// the other tests check rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/testing/filled.h"
#include "base/testing/on_record.h"
#include "base/testing/printed.h"
#include "core/claims/claim_steps.h"
#include "core/cluster/assemble.h"
#include "core/cluster/assumed_pods.h"
#include "core/cluster/cluster.h"
#include "core/cluster/proposal.h"
#include "core/cluster/quota_book.h"
#include "core/cluster/ranking.h"
#include "core/cluster/room.h"
#include "core/cluster/what_if.h"
#include "core/health/card_health.h"
#include "core/health/xid_policy.h"
#include "core/history/history.h"
#include "core/journal/journal.h"
#include "core/model/share_policy.h"
#include "core/policy/place_pod.h"
#include "core/policy/unschedulable_reason.h"
#include "core/testing/pseudorandom.h"

namespace carve {
namespace {

constexpr std::array kNames = {"a", "b", "c"};

std::string name(Numbers& numbers) { return kNames[numbers.below(kNames.size())]; }

Owner owner(Numbers& numbers) { return {static_cast<OwnerKind>(numbers.below(3)), "u" + name(numbers)}; }

std::string states(const Ledger& ledger) {
  std::string out;
  for (const CardState& state : ledger.cards()) {
    out += printed(state.card.id) + printed(state.use) + printed(state.slices) + printed(state.free_memory()) +
           printed(state.free_compute());
  }
  return out;
}

/// Slices on two cards, as the owners' pods got them.
std::vector<Slice> some_slices(const Owner& of, Numbers& numbers) {
  std::vector<Slice> slices;
  for (std::uint64_t i = 1 + numbers.below(2); i > 0; --i) {
    auto slice = filled<Slice>(numbers);
    slice.owner = of;
    slice.part = name(numbers);
    slice.card = CardId(numbers.one_of(5) ? "GPU-2" : "GPU-" + std::to_string(numbers.below(2)));
    slice.memory = Bytes::mib(numbers.below(9'000));
    slice.exclusive = slice.whole || numbers.one_of(8);
    slice.compute = CoreShare(static_cast<std::uint32_t>(1 + numbers.below(60)));
    slice.ceiling = numbers.one_of(4) ? CoreShare(60) : CoreShare::whole();
    slices.push_back(slice);
  }
  return slices;
}

NodeState some_node(Numbers& numbers, std::vector<Owner>* owners) {
  NodeState node;
  std::vector<CardId> ids;
  for (int i = 0; i < 2; ++i) {
    ids.emplace_back("GPU-" + std::to_string(i));
    EXPECT_TRUE(node.ledger.put_card(pseudorandom_card(ids.back().str(), numbers)).has_value());
  }
  node.links = LinkMatrix(ids);
  for (std::uint64_t i = numbers.below(4); i > 0; --i) {
    const Owner of{OwnerKind::kPod, "p" + std::to_string(i)};
    if (const auto placed = place_pod(node.ledger, node.links, of, pseudorandom_pod(numbers), kPolicies[0])) {
      EXPECT_TRUE(node.ledger.add(*placed).has_value());
      owners->push_back(of);
    }
  }
  return node;
}

std::string requests(Numbers& numbers) {
  const auto request = filled<Request>(numbers);
  const std::vector<PartRequest> parts = filled<std::vector<PartRequest>>(numbers);
  const auto cards = static_cast<std::uint32_t>(1 + numbers.below(4));
  const auto pieces = static_cast<std::uint32_t>(1 + numbers.below(9));
  std::string out = printed(validate(request)) + to_human(request) + to_human(parts) +
                    printed(equal_parts(cards, pieces));
  Request in_bytes = request;
  in_bytes.memory = MemoryAsk::of(Bytes::mib(numbers.below(100)));
  for (std::uint32_t part = 0; part < 3; ++part) out += printed(part_of(in_bytes, part, 3));
  for (const char* words : {"a100,H200", "!T4", "a100,!40gb", ",", "", "!"}) {
    out += printed(model_matches(numbers.one_of(2) ? "NVIDIA A100-SXM4-40GB" : "Tesla T4", words));
  }
  return out;
}

std::string records(Numbers& numbers) {
  const Owner of = owner(numbers);
  const auto slices = some_slices(of, numbers);
  const auto record = record_of(7, slices);
  std::string out = printed(validate(filled<Record>(numbers))) + printed(record);
  return record ? out + printed(validate(*record)) + printed(slices_of(*record)) : out;
}

std::string share_policies(Numbers& numbers) {
  constexpr std::array kWords = {"fixed", "fixed-share", "fs",     "3",   "burst",    "bs",       "2",
                                 "4",     "equal",       "be",     "1",   "5",        "0",        "x",
                                 "",      "0-",          "even-0", "0-7", "even-100", "even-101"};
  std::string out;
  const auto policy = share_policy_from(kWords[numbers.below(kWords.size())]);
  if (policy) out += to_string(*policy);
  SharePolicies policies;
  if (policy && numbers.one_of(2)) policies.node = policy;
  if (policy && numbers.one_of(2)) policies.cards[CardId("GPU-1")] = *policy;
  if (numbers.one_of(2)) policies.dialects["a"] = {SharePolicy::Kind::kEqual};
  std::vector<Slice> all;
  for (int i = 0; i < 3; ++i) {
    for (Slice& slice : some_slices(owner(numbers), numbers)) {
      slice.share = static_cast<ShareClass>(numbers.below(4));
      slice.dialect = name(numbers);
      all.push_back(slice);
    }
  }
  const ShareDivision division(policies, all);
  for (const Slice& slice : all) out += printed(division.enforced(slice));
  return out;
}

std::string health(Numbers& numbers) {
  CardHealth card;
  Clock::Time now{};
  std::string out;
  for (int i = 0; i < 12; ++i) {
    now += std::chrono::milliseconds(numbers.one_of(3) ? numbers.below(70'000) : numbers.below(6'000));
    constexpr std::array kXids = {13U, 31U, 48U, 63U, 79U, 94U, 95U, 119U, 154U, 500U};
    const std::uint32_t xid = kXids[numbers.below(kXids.size())];
    const XidRow& row = built_in_xid_policy().row(xid);
    switch (numbers.below(6)) {
      case 0: card.saw_xid(xid, row, now); break;
      case 1:
        card.driver_away("it is gone", now - std::chrono::seconds(numbers.below(3)), CardHealth::kAbsentGrace);
        break;
      case 2: card.looked({numbers.one_of(2), numbers.one_of(3), {}}, now); break;
      case 3: card.looked({true, false, static_cast<std::uint32_t>(numbers.below(3))}, now); break;
      case 4:
        if (numbers.one_of(4)) card.restore({xid}, row, now);
        break;
      default: card.looked({}, now);
    }
    out += to_string(card.condition(now)) + printed(card.health(now)) + printed(card.held()) + printed(card.counts()) +
           printed(card.last_xid());
  }
  return out;
}

std::string xids(Numbers& numbers) {
  const auto xid = static_cast<std::uint32_t>(numbers.below(1'000));
  const XidRow& row = built_in_xid_policy().row(xid);
  return name_of_xid(xid, row) + to_string(row.action) + printed(row);
}

std::string journals(Numbers& numbers) {
  JournalState state;
  std::string out;
  for (int i = 0; i < 8; ++i) {
    auto event = filled<JournalEvent>(numbers);
    if (auto* put = std::get_if<PutRecord>(&event)) {
      const Owner of = owner(numbers);
      if (const auto record = record_of(7, some_slices(of, numbers))) put->record = *record;
    }
    if (auto* drop = std::get_if<DropOwner>(&event)) drop->owner = owner(numbers);
    if (auto* note = std::get_if<PutNote>(&event)) note->slice = name(numbers);
    if (auto* note = std::get_if<DropNote>(&event)) note->slice = name(numbers);
    const auto done = apply_event(state, event);
    out += done ? "" : done.error().what;
    out += printed(state.records) + printed(state.counters) + printed(state.notes);
    out += printed(snapshot_of(state).size()) + printed(slices_of(state).size());
  }
  return out;
}

std::string bookings(Numbers& numbers) {
  NodeParts parts;
  for (int i = 0; i < 2; ++i) parts.cards.push_back(pseudorandom_card("GPU-" + std::to_string(i), numbers));
  if (numbers.one_of(9)) parts.cards.push_back(parts.cards[0]);
  if (numbers.one_of(9)) parts.cards[0].memory = Bytes();
  for (std::uint64_t i = numbers.below(6); i > 0; --i) {
    auto booking = filled<Booking>(numbers);
    booking.owner = owner(numbers);
    booking.slices = some_slices(booking.owner, numbers);
    parts.bookings.push_back(std::move(booking));
  }
  const Assembled made = assemble(std::move(parts));
  return printed(made.conflicts) + states(made.state.ledger) + printed(made.state.reserved);
}

std::string reservations(Numbers& numbers) {
  std::vector<Owner> owners;
  NodeState node = some_node(numbers, &owners);
  std::vector<NominatedReservation> all;
  for (std::uint64_t i = numbers.below(3); i > 0; --i) {
    NominatedReservation one;
    one.owner = {OwnerKind::kPod, "q" + std::to_string(i)};
    one.priority = static_cast<std::int32_t>(numbers.below(4));
    one.slices = some_slices(one.owner, numbers);
    for (const Owner& going : owners) {
      if (numbers.one_of(2)) one.going.push_back(going);
    }
    all.push_back(std::move(one));
  }
  const Owner seer{OwnerKind::kPod, numbers.one_of(2) ? "q1" : "r"};
  return states(seen_by(seer, static_cast<std::int32_t>(numbers.below(4)), node.ledger, all));
}

std::string proposals(Numbers& numbers) {
  std::vector<Owner> owners;
  const NodeState node = some_node(numbers, &owners);
  PreemptionCandidates candidates;
  candidates.allowed = {static_cast<std::int64_t>(numbers.below(2)), 1};
  std::vector<Owner> proposed;
  for (const Owner& one : owners) {
    candidates.holders["n"].push_back({one, static_cast<std::int32_t>(numbers.below(3)),
                                       static_cast<std::int64_t>(numbers.below(20)),
                                       numbers.one_of(2) ? std::vector<std::size_t>{numbers.below(2)}
                                                         : std::vector<std::size_t>{}});
    if (numbers.one_of(5)) candidates.going.insert(one);
    if (numbers.one_of(2)) proposed.push_back(one);
  }
  const auto parts = pseudorandom_pod(numbers);
  const ProposalAnswer answer =
      correct_proposal(node, "n", {OwnerKind::kPod, "new"}, parts, static_cast<std::int32_t>(numbers.below(4)),
                       kPolicies[0], proposed, candidates);
  return printed(answer) + printed(unschedulable_reason_on(node.ledger, parts));
}

std::string assumptions(Numbers& numbers) {
  AssumedPods assumed;
  Clock::Time now{};
  std::vector<Owner> owners;
  const auto node = std::make_shared<const NodeState>(some_node(numbers, &owners));
  std::string out;
  for (int i = 0; i < 10; ++i) {
    now += std::chrono::milliseconds(numbers.below(1'500));
    const Owner of{OwnerKind::kPod, "p" + std::to_string(numbers.below(4))};
    switch (numbers.below(5)) {
      case 0: assumed.forget(of); break;
      case 1: assumed.binding_begins(of, now); break;
      case 2: assumed.expire(now); break;
      default:
        const std::string why = name(numbers);
        const std::string there = numbers.one_of(3) ? "b" : "a";
        assumed.expect(of, there, some_slices(of, numbers), now, why);
    }
    const Owner but{OwnerKind::kPod, "p" + std::to_string(numbers.below(4))};
    const AssumedPods::Node ahead = assumed.ahead("a", node, but);
    out += printed(assumed.size()) + (ahead ? states(ahead->ledger) : "") + printed(assumed.sent_for(but, "a")) +
           assumed.why_sent(but, "a") + printed(assumed.nodes());
  }
  return out;
}

/// Objects that refer to each other, in every state that a crash or an administrator may leave.
ClaimWorld some_world(Numbers& numbers) {
  constexpr std::array kProvisioners = {"elasticgpu.io/vcuda", "elasticgpu.io/qgpu",
                                        "gpushare.provisioner.elasticgpu.io", "elasticgpu.io/pgpu", "example.com/x"};
  constexpr std::array kGpuPhases = {"", "Available", "Bound", "Released", "Failed"};
  ClaimWorld world;
  for (const char* key : kNames) {
    if (!numbers.one_of(4)) {
      auto& made = world.classes[key] = filled<ElasticClass>(numbers);
      made.name = key;
      made.provisioner = kProvisioners[numbers.below(kProvisioners.size())];
      if (!numbers.one_of(6)) made.error.clear();
    }
    if (!numbers.one_of(3)) {
      auto& claim = world.claims[{"ml", key}] = filled<ElasticClaim>(numbers);
      claim.namespace_name = "ml";
      claim.name = key;
      claim.uid = std::string("u-") + key;
      claim.class_name = name(numbers);
      claim.gpu = numbers.one_of(2) ? "" : name(numbers);
      claim.request = pseudorandom_request(numbers);
      claim.deleting = numbers.one_of(5);
      claim.phase = numbers.one_of(2) ? "Pending" : "Bound";
      if (!numbers.one_of(6)) claim.error.clear();
    }
    if (!numbers.one_of(3)) {
      auto& gpu = world.gpus[key] = filled<ElasticGpu>(numbers);
      gpu.name = key;
      gpu.uid = std::string("g-") + key;
      gpu.class_name = name(numbers);
      gpu.node = numbers.one_of(2) ? "n1" : "n2";
      gpu.request = pseudorandom_request(numbers);
      gpu.phase = kGpuPhases[numbers.below(kGpuPhases.size())];
      gpu.claim.reset();
      if (!numbers.one_of(3)) gpu.claim = {"ml", name(numbers), numbers.one_of(3) ? "" : "u-" + name(numbers)};
      if (!numbers.one_of(6)) gpu.error.clear();
    }
  }
  return world;
}

std::string claims(Numbers& numbers) {
  ClaimWorld world = some_world(numbers);
  const std::uint64_t bits = numbers.below(64);
  world.place_of = [bits](const ElasticGpu& gpu) -> std::optional<CardPlace> {
    if ((bits & 1U) != 0 && gpu.name == "a") return std::nullopt;
    return CardPlace{gpu.node, {CardId("GPU-1")}, Bytes::gib(16), (bits & 2U) != 0 ? "lost" : "", "Tesla T4"};
  };
  world.has_room = [bits](const ElasticGpu& gpu, const CardPlace&) { return (bits & 4U) == 0 || gpu.name == "b"; };
  world.users = [bits](const ElasticClaim&) { return static_cast<std::size_t>(bits >> 3U & 1U); };
  world.choose = [bits](const ElasticClaim&, const ElasticClass&,
                        const Request& request) -> Result<std::optional<CardPlace>> {
    if ((bits & 16U) != 0) return fail(Code::kResourceExhausted, "no card");
    if ((bits & 32U) != 0) return std::nullopt;
    return CardPlace{"n1", std::vector<CardId>(request.count, CardId("GPU-2")), Bytes::gib(16), "", "Tesla T4"};
  };
  return printed(claim_steps(world));
}

TEST(CoreRecords, DecideAsOnRecord) {
  on_record("defaults", "5a85b1f5e1f1d8e4", 1, [](Numbers&) {
    return defaults<Booking, BarredModel, Card, CardLook, CardPlace, CardUse, ClaimStep, Constraints, ElasticClaim,
                    ElasticClass, ElasticGpu, FittingNode, HistoryAnswer, HistoryKey, HistoryQuery,
                    HistorySample, Holder, Leftover, NominatedReservation, Offer, PartRequest,
                    PreemptionCandidates, PreparedFor, ProposalAnswer, Quota, QuotaUse, RankedCard, RankedNode, Record,
                    RecordPart, RefusedNode, Request, SharePolicy, SharePolicies, Slice, SliceNote, SmallerAsk,
                    UsageHours, XidPolicy, XidRow>();
  });
  on_record("requests", "c09e73e68dfb09d0", 400, requests);
  on_record("records", "6e93150b1d47d003", 400, records);
  on_record("share_policies", "14c63a52ebb14496", 400, share_policies);
  on_record("health", "f02e26a5243f58f5", 400, health);
  on_record("xids", "84234c4f272626bf", 2'000, xids);
  on_record("journals", "748b477d1f24efd3", 400, journals);
  on_record("bookings", "5b8a8da64f065a84", 400, bookings);
  on_record("reservations", "d15c8b5c70c435f0", 400, reservations);
  on_record("proposals", "7baa9dd893939833", 600, proposals);
  on_record("assumptions", "5b6080230f8cd0ee", 400, assumptions);
  on_record("claims", "eed846b164a8ac5f", 1'000, claims);
}

}  // namespace
}  // namespace carve
