#include "codec/dialects/gpushare_unhealthy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(UnhealthyGpus, AreIndexesSeparatedByCommas) {
  EXPECT_THAT(*parse_unhealthy_gpus("1"), ElementsAre(1));
  EXPECT_THAT(*parse_unhealthy_gpus("3,0"), ElementsAre(0, 3));
  EXPECT_THAT(*parse_unhealthy_gpus(" 2 , 2,\t11\n"), ElementsAre(2, 11));
  EXPECT_THAT(*parse_unhealthy_gpus("1023"), ElementsAre(1023)) << "the last legal one";
  EXPECT_THAT(*parse_unhealthy_gpus(""), IsEmpty()) << "gpushare read this as card 0";
  EXPECT_THAT(parse_unhealthy_gpus(" \n").value(), IsEmpty());
}

TEST(UnhealthyGpus, WithOneFaultyIndexNoneCounts) {
  for (const auto* text : {"x", "0,x", "1,,2", ",1", "1,", "-1", "1.5", "1;2", "1 2", "1024", "GPU-0",
                           "99999999999999999999"}) {
    const auto read = parse_unhealthy_gpus(text);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().what, HasSubstr("gpus")) << text;
  }
  EXPECT_THAT(parse_unhealthy_gpus("0,x").error().what, HasSubstr("\"x\""));
}

TEST(UnhealthyGpus, TheConfigMapsNameContainsTheNode) {
  EXPECT_EQ(node_of_unhealthy_gpus("unhealthy-gpu-gpu-1.example.org"), "gpu-1.example.org");
  EXPECT_EQ(node_of_unhealthy_gpus("unhealthy-gpu-"), "");
  EXPECT_EQ(node_of_unhealthy_gpus("kube-root-ca.crt"), "");
}

}  // namespace
}  // namespace carve::codec
