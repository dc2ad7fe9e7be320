#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/agent/agent.h"
#include "app/agent/testing/machine.h"

// Tests the cards' device files, if they belong to Carve.
namespace carve::agent {
namespace {

using fakes::ask;
using fakes::Machine;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

AccessRule everyone() {
  AccessRule rule;
  rule.text = "everyone";
  return rule;
}

Machine& owning(Machine& machine) {
  machine.own_devices = true;
  return machine;
}

TEST(AgentsCardFiles, AreClosedAtTheStartAndASliceGetsItsOwnNodes) {
  Machine machine;
  auto agent = owning(machine).start({everyone()});
  ASSERT_TRUE(agent);
  EXPECT_THAT(machine.card_files.closed, ElementsAre(0, 1));
  const auto grant = agent->allocate({100, 4711, {4711}}, ask(4, 30), {});
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->card_files, "/dev/carve/" + grant->slice);
  const auto& [user, cards] = machine.card_files.given.at(grant->slice);
  EXPECT_EQ(user, 4711U);
  EXPECT_THAT(cards, ElementsAre(grant->cards.front().minor));
  ASSERT_TRUE(agent->release(fakes::root(), grant->slice, true));
  EXPECT_THAT(machine.card_files.given, IsEmpty());
}

TEST(AgentsCardFiles, AreNotChangedWithoutOwnDevices) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(fakes::root(), ask(4, 30), {});
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->card_files, "");
  EXPECT_FALSE(agent->view(fakes::root())->own_devices);
  EXPECT_THAT(machine.card_files.closed, IsEmpty());
  EXPECT_THAT(machine.card_files.given, IsEmpty());
}

TEST(AgentsCardFiles, NodesOfEndedSlicesAreRemovedAtTheStart) {
  Machine machine;
  machine.card_files.given["run-dead-1"] = {1, {0}};
  auto agent = owning(machine).start();
  EXPECT_THAT(machine.card_files.given, IsEmpty());
  auto kept = ask(4, 30);
  kept.keep = true;
  const auto grant = agent->allocate(fakes::root(), kept, {});
  ASSERT_TRUE(grant);
  machine.card_files.given.clear();  // as if /dev had been re-created
  fakes::leave_dead(std::move(agent));
  auto next = machine.start();
  EXPECT_EQ(machine.card_files.given.count(grant->slice), 1U);
  EXPECT_EQ(machine.devices.last.card_files, "/dev/carve/" + grant->slice);
}

TEST(AgentsCardFiles, ASliceWithoutItsNodesIsRefusedAndLeavesNothing) {
  Machine machine;
  auto agent = owning(machine).start();
  machine.card_files.error = "/dev/nvidia0: not a device file";
  const auto refused = agent->allocate(fakes::root(), ask(4, 30), {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("not a device file"));
  EXPECT_THAT(agent->view(fakes::root())->slices, IsEmpty());
  EXPECT_THAT(machine.cgroups.groups, IsEmpty());
  EXPECT_THAT(machine.pages.orders, IsEmpty());
}

TEST(AgentsCardFiles, AFileThatCannotBeClosedIsReported) {
  Machine machine;
  machine.card_files.error = "/dev/nvidia0: not a device file";
  auto agent = owning(machine).start();
  const auto view = agent->view(fakes::root());
  EXPECT_EQ(view->device_error, "/dev/nvidia0: not a device file");
  ASSERT_FALSE(view->events.empty());
  EXPECT_EQ(view->events.back().kind, "device-file");
  EXPECT_TRUE(view->own_devices);
  EXPECT_EQ(view->device_mode, 0600U);
}

}  // namespace
}  // namespace carve::agent
