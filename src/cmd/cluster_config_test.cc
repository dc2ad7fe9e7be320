#include "cmd/cluster_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace carve::cmd {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ClusterConfigFile : public ::testing::Test {
 protected:
  Result<ClusterConfig> read(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/cluster-" + std::to_string(::getpid()) + ".conf";
    std::ofstream(path) << text;
    return read_cluster_config(path);
  }
};

TEST_F(ClusterConfigFile, SetsWhatControlAndAgentsShare) {
  const auto config = read("plugins = dra,slots  # both\n\ndialects.nvidia = dra\ndialects.gpushare-unit = MiB\n"
                           "dialects.gpushare-http = on\n"
                           "placement.policy = spread\nscheduler.name =\nadmission.visible-devices = refuse\n");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->plugins, "dra,slots");
  EXPECT_EQ(read("doors = dra\n")->plugins, "dra") << "the earlier name";
  EXPECT_THAT(read("doors = dra\nplugins = slots\n").error().what,
              HasSubstr(":2: plugins: is the same setting as doors; remove one of the two"));
  EXPECT_FALSE(config->dialects().nvidia_by_slots);
  EXPECT_EQ(config->dialects().gpushare_unit, Bytes::mib(1));
  EXPECT_TRUE(config->gpushare_http);
  EXPECT_EQ(config->policy, "spread");
  EXPECT_EQ(config->scheduler, "");
  EXPECT_EQ(config->visible, codec::VisibleDevices::kRefuse);
  EXPECT_THAT(config->totals(), Not(Contains("nvidia.com/gpu")));
}

TEST_F(ClusterConfigFile, SetsTheUnitsAndPoliciesOfDialects) {
  const auto config = read("dialects.cgpu-policy = 4\ndialects.qgpu-policy = fs\ndialects.volcano-factor = 10\n"
                           "dialects.deepomatic-containers = 5\n");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(to_string(config->share_policies().dialects.at("cgpu")), "burst");
  EXPECT_EQ(to_string(config->share_policies().dialects.at("qgpu")), "fixed");
  EXPECT_EQ(config->dialects().volcano_unit, Bytes::mib(10));
  EXPECT_EQ(config->dialects().deepomatic_containers, 5U);
  EXPECT_THAT(config->totals(), Contains("deepomatic.com/shared-gpu"));
  EXPECT_EQ(to_string(read("dialects.qgpu-policy = burst-share\n")->qgpu_policy), "burst");
  EXPECT_EQ(to_string(read("dialects.cgpu-policy = 0-16\n")->cgpu_policy), "even-16");
  EXPECT_EQ(to_string(read("")->qgpu_policy), "equal");
  EXPECT_EQ(to_string(read("")->cgpu_policy), "fixed");
  EXPECT_THAT(read("")->totals(), Not(Contains("deepomatic.com/shared-gpu")));
  EXPECT_THAT(read("dialects.cgpu-policy = 0\n").error().what,
              HasSubstr("\"0\"; legal are fixed (fixed-share, fs, 3)"));
  EXPECT_THAT(read("dialects.qgpu-policy = fair\n").error().what,
              HasSubstr("\"fair\"; legal are fixed (fixed-share, fs, 3)"));
  EXPECT_THAT(read("dialects.volcano-factor = 0\n").error().what, HasSubstr("legal: 1 to 1024 MiB per unit"));
  EXPECT_THAT(read("dialects.deepomatic-containers = 101\n").error().what, HasSubstr("legal: 0 to 100 containers"));
}

TEST_F(ClusterConfigFile, IsTheDefaultWhenItIsEmpty) {
  const auto config = read("");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->plugins, "slots");
  EXPECT_FALSE(config->gpushare_http) << "a port without authentication must be enabled explicitly";
  EXPECT_EQ(config->visible, codec::VisibleDevices::kVoid);
  EXPECT_THAT(config->totals(), Contains("nvidia.com/gpu"));
}

TEST_F(ClusterConfigFile, NamesEveryErrorWithItsLine) {
  const auto config = read("plugins = window\nnonsense\nplacement.policy = bestfit\ncolour = red\n"
                           "admission.visible-devices = leave\ndialects.gpushare-http = yes\n");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().what,
              AllOf(HasSubstr(":1: plugins: \"window\"; legal are dra, slots, dra,slots and dra,slots,shared"),
                    HasSubstr(":2: nonsense: not"),
                    HasSubstr(":3: placement.policy: "), HasSubstr("binpack"), HasSubstr(":4: colour: unknown key"),
                    HasSubstr(":5: admission.visible-devices: \"leave\"; legal are void and refuse"),
                    HasSubstr(":6: dialects.gpushare-http: \"yes\"; legal are off and on")));
}

TEST_F(ClusterConfigFile, RequiresAnInterfaceThatServesNvidia) {
  EXPECT_THAT(read("plugins = slots\ndialects.nvidia = dra\n").error().what,
              HasSubstr(".conf: dialects.nvidia = dra with plugins = slots: no agent serves claims"));
  EXPECT_THAT(read("plugins = dra\ndialects.nvidia = slots\n").error().what,
              HasSubstr("dialects.nvidia = slots with plugins = dra: no agent serves slots"));
  EXPECT_EQ(read("plugins = dra\n")->nvidia, NvidiaPlugin::kDra) << "the default is the interface that is served";
  for (const char* plugins : {"dra", "slots", "dra,slots"}) {
    for (const char* nvidia : {"dra", "slots", "off"}) {
      const std::string_view served = plugins;
      const bool legal = served.find(nvidia) != std::string_view::npos || nvidia == std::string_view("off");
      EXPECT_EQ(read(fmt::format("plugins = {}\ndialects.nvidia = {}\n", plugins, nvidia)).has_value(), legal)
          << plugins << " " << nvidia;
    }
  }
}

TEST_F(ClusterConfigFile, ReadsHamisNamesOnlyBesideNvidiasBySlots) {
  EXPECT_FALSE(read("")->dialects().hami);
  EXPECT_TRUE(read("dialects.hami = on\n")->dialects().hami);
  EXPECT_FALSE(read("dialects.hami = off\ndialects.nvidia = off\n")->dialects().hami);
  EXPECT_THAT(read("dialects.hami = yes\n").error().what, HasSubstr("dialects.hami: \"yes\"; legal are off and on"));
  EXPECT_THAT(read("dialects.hami = on\ndialects.nvidia = off\n").error().what,
              HasSubstr("dialects.hami = on without dialects.nvidia = slots"));
  EXPECT_FALSE(legal_lines("dialects.hami = on\ndialects.nvidia = slot\n").dialects().hami);
}

TEST(ClusterConfig, LegalLinesAreReadBesideIllegalOnes) {
  const auto config = legal_lines("plugins = dra,slots\nnonsense\ndialects.gpushare-unit = MiB\ncolour = red\n");
  EXPECT_EQ(config.plugins, "dra,slots");
  EXPECT_EQ(config.gpushare_unit, Bytes::mib(1));
  EXPECT_THAT(config.totals(), Contains("nvidia.com/gpu"));
}

/// Another plugin may serve nvidia.com/gpu then, so its total is not Carve's to remove.
TEST(ClusterConfig, AnIllegalLineOnNvidiaCountsAsOff) {
  for (const char* text :
       {"dialects.nvidia = slot\n", "plugins = window\n", "plugins = dra\ndialects.nvidia = slots\n"})
    EXPECT_THAT(legal_lines(text).totals(), Not(Contains("nvidia.com/gpu"))) << text;
}

TEST(ClusterConfig, ReportsAMissingFileAsNotFound) {
  EXPECT_EQ(read_cluster_config(::testing::TempDir() + "/none.conf").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace carve::cmd
