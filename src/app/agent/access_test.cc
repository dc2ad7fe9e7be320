#include "app/agent/access.h"

#include <gtest/gtest.h>

namespace carve {
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

}  // namespace
}  // namespace carve
