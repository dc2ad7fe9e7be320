#include "app/control/state/node_entry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "app/control/testing/objects.h"
#include "codec/cluster/cluster_pod.h"

// After every change, the incremental update of a node's ledger equals a rebuild.
namespace carve::control {
namespace {

using namespace testing;  // NOLINT: the objects of the tests

constexpr unsigned kCards = 3, kOwners = 4;

/// One node, changed as ClusterModel changes it: owners with bookings that may have changed are in `changed_owners`.
class History {
 public:
  explicit History(unsigned seed) : random_(seed) {
    for (unsigned i = 0; i < kCards; ++i) put_card(i);
    entry_.exists = true;
  }
  NodeEntry& entry() { return entry_; }

  void step() {
    const Owner owner{pick(5) == 0 ? OwnerKind::kClaim : OwnerKind::kPod, "u" + std::to_string(pick(kOwners))};
    switch (pick(9)) {
      case 0:
      case 1: return put_card(pick(kCards));
      case 2: return say_more(pick(kCards));
      case 3: return put_pod("u" + std::to_string(pick(kOwners)));
      case 4: {
        entry_.pods.erase(owner.uid);
        entry_.changed_owners.insert({OwnerKind::kPod, owner.uid});
        return;
      }
      case 5: {
        if (pick(2) == 0) {
          entry_.lingering[owner] = {slices(owner), 1, {}};
        } else {
          entry_.lingering.erase(owner);
        }
        entry_.changed_owners.insert(owner);
        return;
      }
      case 6: {
        if (pick(3) != 0) {
          entry_.reserved[owner].slices = slices(owner);
        } else {
          entry_.reserved.erase(owner);
        }
        entry_.changed_owners.insert(owner);
        return;
      }
      case 7: {
        if (pick(2) == 0) {
          entry_.kept[owner] = {{owner, 5, slices(owner), {}}, {}};
        } else {
          entry_.kept.erase(owner);
        }
        return;
      }
      default: {
        if (pick(4) == 0) entry_.marked = {static_cast<int>(pick(kCards))};
        if (pick(4) == 0) entry_.node.leaving = !entry_.node.leaving;
        if (pick(4) == 0) entry_.node.labels["pool"] = std::to_string(pick(3));
        entry_.rebuild = true;
        return;
      }
    }
  }

 private:
  unsigned pick(unsigned n) { return static_cast<unsigned>(random_() % n); }
  std::ptrdiff_t place_in(std::size_t size) { return static_cast<std::ptrdiff_t>(random_() % size); }
  static std::string uuid(unsigned card) { return "GPU-" + std::to_string(card); }

  std::vector<Slice> slices(const Owner& owner) {
    std::vector<Slice> all;
    const bool alone = pick(30) == 0;
    for (unsigned card = pick(kCards); card < kCards; card += 1 + pick(2)) {
      auto one = slice(owner.uid, uuid(card), 1 + pick(3), owner.kind);
      if (pick(3) == 0) one.part = "b";
      one.exclusive = alone;
      all.push_back(one);
    }
    return all;
  }
  /// A new version of the card's object: usually with one holder more or less.
  void put_card(unsigned card) {
    const auto known = entry_.gpus.find("n1." + uuid(card));
    GpuEntry gpu{carve::control::testing::gpu("n1", uuid(card), 24), 0};
    gpu.object.name = "n1." + uuid(card);
    gpu.object.index = static_cast<int>(card);
    if (known != entry_.gpus.end()) gpu = known->second;
    auto& holders = gpu.object.holders;
    switch (pick(8)) {
      case 0: gpu.object.card.health.ok = pick(3) != 0; break;
      case 1:
        gpu.unreadable_holders = pick(4) == 0 ? 1 : 0;
        break;
      case 2: gpu.object.links = {{uuid(pick(kCards)), "NVLINK", static_cast<int>(pick(3))}}; break;
      case 3: std::shuffle(holders.begin(), holders.end(), random_); break;
      case 4:
        if (pick(4) == 0) return entry_.put_gpu(gpu.object.name, std::nullopt);
        break;
      default: break;
    }
    if (!holders.empty() && pick(2) == 0) holders.erase(holders.begin() + place_in(holders.size()));
    if (pick(2) == 0) add_holder(card, &holders);
    entry_.put_gpu(gpu.object.name, std::move(gpu));
  }
  /// Also invalid ones: the same part twice, with different sizes.
  void say_more(unsigned card) {
    const auto known = entry_.gpus.find("n1." + uuid(card));
    if (known == entry_.gpus.end()) return;
    GpuEntry gpu = known->second;
    for (unsigned n = 1 + pick(3); n > 0; --n) add_holder(card, &gpu.object.holders);
    entry_.put_gpu(gpu.object.name, std::move(gpu));
  }
  void add_holder(unsigned card, std::vector<codec::GpuHolder>* holders) {
    auto held = slice("u" + std::to_string(pick(kOwners)), uuid(card), 1 + pick(3),
                      pick(5) == 0 ? OwnerKind::kClaim : OwnerKind::kPod);
    holders->insert(holders->begin() + place_in(holders->size() + 1), holder(held));
  }
  void put_pod(const std::string& uid) {
    const Owner owner{OwnerKind::kPod, uid};
    PodText text{.uid = uid, .node = "n1"};
    text.record = record_text(slices(owner), pick(3));
    text.phase = pick(4) == 0 ? "Succeeded" : "Running";
    auto object = codec::parse_cluster_pod(pod_object(text));
    ASSERT_TRUE(object) << object.error().what;
    if (auto entry = pod_entry_of(std::move(*object), {}))
      entry_.pods[uid] = std::make_shared<const PodEntry>(std::move(*entry));
    entry_.changed_owners.insert(owner);
  }

  std::mt19937 random_;
  NodeEntry entry_;
};

TEST(NodeEntryHistories, IncrementalUpdateEqualsRebuild) {
  unsigned fitting = 0, misfitting = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    History history(seed);
    std::mt19937 pauses(seed);
    for (int step = 0; step < 80; ++step) {
      history.step();
      if (pauses() % 3 == 0) continue;  // several changes before the next assembly
      NodeEntry whole = history.entry();
      whole.rebuild = true;
      whole.links.reset();
      const auto should = assemble_node(whole);
      const auto is = assemble_node(history.entry());
      ASSERT_EQ(*is.state, *should.state) << "seed " << seed << ", step " << step;
      ASSERT_EQ(is.conflicts, should.conflicts) << "seed " << seed << ", step " << step;
      ++(should.conflicts.empty() ? fitting : misfitting);
    }
  }
  EXPECT_GT(fitting, 1000U);
  EXPECT_GT(misfitting, 1000U);
}

/// Everything except the bookings is taken from the previous ledger unchanged.
TEST(NodeEntry, UpdatesOnlyBookingsIfOnlyBookingsChanged) {
  NodeEntry entry;
  const auto put = [&entry](std::vector<codec::GpuHolder> holders) {
    GpuEntry gpu{testing::gpu("n1", "GPU-0"), 0};
    gpu.object.holders = std::move(holders);
    entry.put_gpu("n1.gpu-0", std::move(gpu));
  };
  const auto a = holder(slice("a", "GPU-0", 1)), b = holder(slice("b", "GPU-0", 2)), c = holder(slice("c", "GPU-0", 3));
  put({a, c});
  auto marked = *assemble_node(entry).state;
  marked.labels["from"] = "before";
  entry.assembled = std::make_shared<const NodeState>(marked);
  put({a, b, c});
  EXPECT_EQ(entry.changed_owners, (std::set<Owner>{b.slice.owner})) << "the other holders did not change";
  const auto updated = assemble_node(entry).state;
  EXPECT_EQ(updated->labels, marked.labels);
  EXPECT_EQ(updated->ledger.find(CardId("GPU-0"))->use.memory, Bytes::gib(6));
  EXPECT_TRUE(entry.changed_owners.empty());
  entry.rebuild = true;
  EXPECT_TRUE(assemble_node(entry).state->labels.empty());
}

}  // namespace
}  // namespace carve::control
