#include "app/agent/access.h"

#include <gtest/gtest.h>

namespace carve::agent {
namespace {

TEST(Access, TheFirstRowThatMatchesDecides) {
  AccessRule deny;
  deny.uid = 7;
  deny.allow = false;
  deny.text = "user:7";
  AccessRule everyone;
  everyone.max_compute = 50;
  everyone.online = false;
  everyone.text = "all max-cores=50 no-online";
  const std::vector<AccessRule> rules = {deny, everyone};
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(1));
  request.compute = CoreShare(50);
  EXPECT_TRUE(check_access(rules, {1, 8, {8}}, request, 0));
  EXPECT_FALSE(check_access(rules, {1, 7, {7}}, request, 0));
  request.priority = PriorityClass::kOnline;
  EXPECT_NE(check_access(rules, {1, 8, {8}}, request, 0).error().what.find("priority online"),
            std::string::npos);
  request.priority = PriorityClass::kStandard;
  request.compute = CoreShare(51);
  const auto refused = check_access(rules, {1, 8, {8}}, request, 0);
  EXPECT_NE(refused.error().what.find("51, at most 50"), std::string::npos);
  EXPECT_TRUE(check_access(rules, {1, 0, {0}}, request, 0));
  EXPECT_FALSE(check_access({}, {1, 8, {8}}, request, 0));
}

TEST(Access, AnOrdinaryUsersSlicesAreLimitedWithoutMaxSlices) {
  AccessRule row;
  row.text = "everyone";
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(1));
  EXPECT_TRUE(check_access({row}, {1, 8, {8}}, request, kUsualMostSlices - 1));
  const auto refused = check_access({row}, {1, 8, {8}}, request, kUsualMostSlices);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("one more slice: 32 exist, at most 32 without max-slices"), std::string::npos)
      << refused.error().what;
  EXPECT_TRUE(check_access({row}, {1, 0, {0}}, request, 100)) << "root";
  row.max_slices = 40;
  EXPECT_TRUE(check_access({row}, {1, 8, {8}}, request, 39));
  EXPECT_FALSE(check_access({row}, {1, 8, {8}}, request, 40));
}

}  // namespace
}  // namespace carve::agent
