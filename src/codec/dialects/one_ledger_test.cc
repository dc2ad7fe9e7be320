// Random mixes of pods of all three dialects on one node. This test adds up the results again, from the slices alone.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "codec/dialects/dialect.h"
#include "core/policy/place_pod.h"
#include "core/policy/policy.h"

namespace carve::codec {
namespace {

constexpr int kCards = 4;
constexpr std::uint64_t kGib = 16;

/// The request of one container in some dialect.
ContainerAsk arbitrary(const std::string& name, std::mt19937& dice) {
  const auto up_to = [&dice](unsigned most) { return std::to_string(1 + dice() % most); };
  ContainerAsk ask{name, ContainerKind::kMain, {}, {}};
  switch (dice() % 6) {
    case 0: ask.limits = {{"elasticgpu.io/gpu-memory", up_to(9000)}}; break;
    case 1: ask.limits = {{"elasticgpu.io/gpu-memory", up_to(9000)}, {"elasticgpu.io/gpu-core", up_to(60)}}; break;
    case 2: ask.limits = {{"elasticgpu.io/gpu-core", up_to(100)}}; break;
    case 3: ask.limits = {{"aliyun.com/gpu-mem", up_to(9)}}; break;
    case 4: ask.limits = {{"nvidia.com/gpu", up_to(2)}}; break;
    default: ask.limits = {{"elasticgpu.io/gpu", up_to(2)}}; break;
  }
  return ask;
}

struct Sum {
  std::uint64_t bytes = 0;
  std::uint64_t guaranteed = 0;
  std::size_t holders = 0;
  bool alone = false;  // one owner has the whole card
};

std::map<std::string, Sum> added_up(const std::map<std::string, std::vector<Slice>>& held) {
  std::map<std::string, Sum> cards;
  for (const auto& [owner, slices] : held) {
    for (const Slice& slice : slices) {
      Sum& card = cards[slice.card.str()];
      card.bytes += slice.memory.count();
      if (slice.share != ShareClass::kBestEffort) card.guaranteed += slice.compute.hundredths();
      card.alone = card.alone || slice.whole || slice.exclusive;
      ++card.holders;
    }
  }
  return cards;
}

TEST(OneLedger, NoMixOfDialectsOvercommitsACard) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::mt19937 dice(seed);
    Ledger ledger;
    std::vector<CardId> ids;
    for (int i = 0; i < kCards; ++i) {
      Card card;
      card.id = CardId("GPU-" + std::to_string(i));
      card.memory = Bytes::gib(kGib);
      ids.push_back(card.id);
      ASSERT_TRUE(ledger.put_card(card));
    }
    const LinkMatrix links(ids);
    std::map<std::string, std::vector<Slice>> held;
    int placed_count = 0;
    int refused = 0;
    for (int i = 0; i < 1000; ++i) {
      PodAsk pod;
      pod.uid = "u" + std::to_string(i);
      pod.containers.push_back(arbitrary("a", dice));
      if (dice() % 4 == 0) pod.containers.push_back(arbitrary("b", dice));
      const auto parts = requests_of(pod, {});
      ASSERT_TRUE(parts) << parts.error().what;
      const Owner owner{OwnerKind::kPod, pod.uid};
      const auto& policy = kPolicies[dice() % kPolicies.size()];
      if (const auto placed = place_pod(ledger, links, owner, *parts, policy)) {
        ASSERT_TRUE(ledger.add(*placed)) << "a placement is accepted by the ledger";
        held[pod.uid] = *placed;
        ++placed_count;
      } else {
        ++refused;
      }
      for (const auto& [id, card] : added_up(held)) {
        ASSERT_LE(card.bytes, kGib << 30) << id << " after " << i << ", seed " << seed;
        ASSERT_LE(card.guaranteed, 100U) << id << " after " << i << ", seed " << seed;
        ASSERT_TRUE(!card.alone || card.holders == 1) << id << " is whole and shared after " << i << ", seed " << seed;
      }
      if (dice() % 2 == 0 && !held.empty()) {
        const auto goes = std::next(held.begin(), static_cast<std::ptrdiff_t>(dice() % held.size()));
        ledger.remove_owner({OwnerKind::kPod, goes->first});
        held.erase(goes);
      }
    }
    EXPECT_GT(placed_count, 200);
    EXPECT_GT(refused, 100) << "the node was never full";
  }
}

}  // namespace
}  // namespace carve::codec
