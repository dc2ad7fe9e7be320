#include "app/node/program_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>


namespace carve::node {
namespace {

using ::testing::HasSubstr;

codec::NodePod pod(const std::string& name) {
  codec::NodePod one;
  one.namespace_name = "ml";
  one.name = name;
  one.uid = "u-" + name;
  one.node = "n1";
  return one;
}

codec::GpuObject gpu(const std::string& card, const std::vector<std::string>& pods) {
  codec::GpuObject one;
  one.card.id = CardId(card);
  for (const auto& name : pods) {
    codec::GpuHolder holder;
    holder.pods = {"ml/" + name};
    one.holders.push_back(std::move(holder));
  }
  return one;
}

TEST(ProgramErrors, AreReportedOnlyToThePodsOnThatCard) {
  const std::vector<codec::NodePod> pods = {pod("a"), pod("b"), pod("c")};
  const std::vector<codec::GpuObject> gpus = {gpu("GPU-0", {"a"}), gpu("GPU-1", {"b", "c", "b"}), gpu("GPU-2", {})};
  const auto alone = program_error_notes({{CardId("GPU-0"), "XID 31: MMU fault"}}, gpus, pods);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].uid, "u-a");
  EXPECT_EQ(alone[0].reason, "GPUProgramError");
  EXPECT_TRUE(alone[0].warning);
  EXPECT_THAT(alone[0].message, HasSubstr("GPU-0: XID 31: MMU fault: a program error of this pod"));
  const auto shared = program_error_notes({{CardId("GPU-1"), "XID 13"}}, gpus, pods);
  ASSERT_EQ(shared.size(), 2U);
  EXPECT_EQ(shared[0].uid, "u-b");
  EXPECT_EQ(shared[1].uid, "u-c");
  EXPECT_THAT(shared[1].message, HasSubstr("of one of the 2 pods on the card"));
  EXPECT_TRUE(program_error_notes({{CardId("GPU-2"), "XID 13"}, {CardId("GPU-9"), "XID 13"}}, gpus, pods).empty());
}

}  // namespace
}  // namespace carve::node
