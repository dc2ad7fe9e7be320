#include "adapter/cdi/device_nodes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>

#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

namespace fs = std::filesystem;

constexpr char kDevices[] =
    "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n507 nvidia-uvm\n\nBlock devices:\n  7 "
    "loop\n259 nvidia\n";

TEST(DeviceNodes, ReadsTheMajorsOfCharacterDevices) {
  const auto drivers = character_devices(kDevices);
  EXPECT_EQ(drivers.at("nvidia"), 195U) << "not the block device of the same name";
  EXPECT_EQ(drivers.at("nvidia-uvm"), 507U);
  EXPECT_TRUE(character_devices("").empty());
  EXPECT_TRUE(character_devices("Character devices:\nnonsense\n99999999999 x\n4096 y\n").empty());
}

TEST(DeviceNodes, TheListOfNodesFollowsTheDrivers) {
  const auto nodes = wanted_nodes(character_devices(kDevices), {3});
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(nodes[0].path, "/dev/nvidia3");
  EXPECT_EQ(nodes[0].minor, 3U);
  EXPECT_EQ(nodes[1].path, "/dev/nvidiactl");
  EXPECT_EQ(nodes[1].minor, 255U);
  EXPECT_EQ(nodes[3].path, "/dev/nvidia-uvm-tools");
  EXPECT_EQ(nodes[3].major, 507U);
  EXPECT_EQ(wanted_nodes(character_devices("Character devices:\n195 nvidia-frontend\n"), {0}).size(), 2U);
  EXPECT_TRUE(wanted_nodes(character_devices("Character devices:\n  1 mem\n"), {0}).empty()) << "no driver: no nodes";
}

TEST(DeviceNodes, ReadsTheRulesOfTheDriver) {
  const auto rules = node_rules("ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 7\nDeviceFileGID: "
                                "44\nDeviceFileMode: 432\nRegistryDwords: \"\"\n");
  EXPECT_FALSE(rules.modify);
  EXPECT_EQ(rules.mode, 0660U);
  EXPECT_EQ(rules.uid, 7U);
  EXPECT_EQ(rules.gid, 44U);
  EXPECT_TRUE(node_rules("").modify);
}

class MissingNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/carve-nodes-XXXXXX";
    host_ = ::mkdtemp(name);
    fs::create_directories(host_ + "/dev");
    fs::create_directories(host_ + "/proc/driver/nvidia");
  }
  void TearDown() override { fs::remove_all(host_); }
  void kernel(const std::string& devices, const std::string& params = "") const {
    ASSERT_TRUE(process::replace_file(host_ + "/proc/devices", devices, 0644));
    ASSERT_TRUE(process::replace_file(host_ + "/proc/driver/nvidia/params", params, 0644));
  }
  std::string host_;
};

TEST_F(MissingNodes, AreCreatedOnceWithTheDriversOwnerAndMode) {
  kernel(kDevices, "DeviceFileMode: 432\nDeviceFileGID: 44\n");
  auto made = make_missing_nodes(host_, {0, 1});
  if (!made && made.error().code == Code::kPermissionDenied) GTEST_SKIP() << "needs root: " << made.error().what;
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(made->size(), 5U);
  struct stat info = {};
  ASSERT_EQ(::stat((host_ + "/dev/nvidia1").c_str(), &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_EQ(major(info.st_rdev), 195U);
  EXPECT_EQ(minor(info.st_rdev), 1U);
  EXPECT_EQ(info.st_mode & 0777U, 0660U);
  EXPECT_EQ(info.st_gid, 44U);
  EXPECT_TRUE(make_missing_nodes(host_, {0, 1})->empty());
}

TEST_F(MissingNodes, TheErrorNamesTheCommandWhenTheDriverForbidsCreation) {
  kernel(kDevices, "ModifyDeviceFiles: 0\n");
  const auto made = make_missing_nodes(host_, {0});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kFailedPrecondition);
  EXPECT_NE(made.error().what.find("/dev/nvidia0"), std::string::npos);
}

TEST_F(MissingNodes, WithoutADriverInTheKernelNothingIsCreated) {
  kernel("Character devices:\n  1 mem\n");
  EXPECT_TRUE(make_missing_nodes(host_, {0})->empty());
  EXPECT_TRUE(fs::is_empty(host_ + "/dev"));
}

}  // namespace
}  // namespace carve::cdi
