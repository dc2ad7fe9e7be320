#include "app/control/bind/bind_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::control {
namespace {

using ::testing::HasSubstr;

class BindRouteTest : public ::testing::Test {
 protected:
  std::string bind() {
    const BindRoute route({[this] { return leads_; }, [this] { return holder_; },
                           [](std::string_view call) { return "bound " + std::string(call); },
                           [this](const std::string& address, std::string_view call) -> Result<std::string> {
                             asked_ += address + " ";
                             if (!answers_) return fail(Code::kDeadlineExceeded, "no answer");
                             return "forwarded " + std::string(call);
                           }});
    return route.bind("pod");
  }
  bool leads_ = false;
  bool answers_ = true;
  std::string holder_ = holder_identity("a_1", "10.0.0.1:8443");
  std::string asked_;
};

TEST_F(BindRouteTest, LeaderBindsItself) {
  leads_ = true;
  EXPECT_EQ(bind(), "bound pod");
  EXPECT_EQ(asked_, "");
}

TEST_F(BindRouteTest, FollowerForwardsToTheLeader) {
  EXPECT_EQ(bind(), "forwarded pod");
  EXPECT_EQ(asked_, "10.0.0.1:8443 ");
}

TEST_F(BindRouteTest, ReturnsARetryableErrorWithoutAnAnswer) {
  answers_ = false;
  EXPECT_THAT(bind(), HasSubstr("did not answer (no answer); kube-scheduler retries"));
  holder_ = "a_1";
  EXPECT_THAT(bind(), HasSubstr("publishes no address"));
  holder_.clear();
  EXPECT_THAT(bind(), HasSubstr("no replica of carve-control leads at the moment"));
}

TEST(HolderIdentity, CarriesTheAddress) {
  EXPECT_EQ(address_in(holder_identity("pod_x", "[fd00::1]:8443")), "[fd00::1]:8443");
  EXPECT_EQ(address_in(holder_identity("pod_x", "")), "");
}

}  // namespace
}  // namespace carve::control
