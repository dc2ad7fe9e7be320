#include <gtest/gtest.h>

#include <future>

#include "app/agent/agent.h"
#include "app/agent/testing/machine.h"

// Tests that files of an ended slice are removed, even if a process died or was away at that time.
namespace carve::agent {
namespace {

using fakes::Machine;

PrepareRequest part(const std::string& claim) {
  Slice slice;
  slice.owner = {OwnerKind::kClaim, claim};
  slice.part = "gpu";
  slice.card = CardId("GPU-0");
  slice.memory = Bytes::gib(4);
  slice.compute = CoreShare(30);
  return {*record_of(0, {slice}), slice.part, "", "default/pod/gpu"};
}

std::string id_of(const Prepared& prepared) { return prepared.device.substr(prepared.device.find('=') + 1); }

TEST(Leftovers, RemainsOfAnUnknownSliceAreDropped) {
  Machine machine;
  machine.gives_cards = false;
  machine.pages.remains = {"s-000001-7"};  // also from an earlier agent
  auto agent = machine.start();
  EXPECT_TRUE(machine.pages.remains.empty()) << "at the start";
  const auto id = id_of(*agent->prepare(part("claim-1")));
  machine.pages.away = true;
  ASSERT_TRUE(agent->unprepare({OwnerKind::kClaim, "claim-1"}));
  machine.pages.orders.clear();
  machine.pages.remains = {id};  // the arbiter was not notified of its end; the next arbiter finds its files
  machine.pages.away = false;
  agent->watch();
  EXPECT_TRUE(machine.pages.remains.empty()) << "while it runs";
}

TEST(Leftovers, ALivingSliceWithOnlyFilesLeftIsRecreated) {
  Machine machine;
  machine.gives_cards = false;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part("claim-1")));
  machine.clock.advance(std::chrono::seconds(2));
  machine.pages.orders.clear();
  machine.pages.remains = {id};
  agent->watch();
  EXPECT_EQ(machine.pages.orders.count(id), 1U);
  EXPECT_TRUE(machine.pages.remains.empty());
  EXPECT_EQ(agent->held().size(), 1U);
}

/// The driver is back and all devices are republished. Meanwhile one of the slices ends.
TEST(Leftovers, ASliceThatEndsDuringARepublicationIsNotPublished) {
  Machine machine;
  machine.gives_cards = false;
  auto agent = machine.start();
  const std::string one = id_of(*agent->prepare(part("claim-1")));
  const std::string other = id_of(*agent->prepare(part("claim-2")));
  agent->watch();
  machine.gpu.now_state = GpuState::kAbsent;
  agent->watch();
  machine.gpu.now_state = GpuState::kOk;
  std::string first;
  std::future<Result<void>> ended;
  machine.devices.on_publish = [&](const std::string& id) {
    if (!first.empty()) return;
    first = id;
    const std::string claim = id == one ? "claim-2" : "claim-1";
    ended = std::async(std::launch::async, [&agent, claim] { return agent->unprepare({OwnerKind::kClaim, claim}); });
    // It either finishes, or waits until this device is published. The test passes in both cases.
    ended.wait_for(std::chrono::milliseconds(200));
  };
  agent->watch();
  ASSERT_TRUE(ended.valid()) << "nothing was republished";
  ASSERT_TRUE(ended.get());
  EXPECT_EQ(machine.devices.published, std::set<std::string>{first});
  EXPECT_TRUE(first == one || first == other);
}

}  // namespace
}  // namespace carve::agent
