#include "adapter/cdi/cdi_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "adapter/process/text_file.h"
#include "base/testing/temp_folder.h"

namespace carve::cdi {
namespace {

SliceDevice example() {
  SliceDevice device;
  device.id = "dev-1";
  device.minors = {3};
  device.slice_folder = "/run/carve/slices/dev-1";
  device.library_folder = "/var/lib/carve/lib/abc";
  device.driver_version = "580.1";
  device.driver = {"/opt/driver/libcuda.so.1", "/opt/driver/libnvidia-ml.so.1"};
  device.driver_mounts = {"/nonexistent/socket"};
  return device;
}

TEST(CdiFiles, PublishesACompleteFileAndWithdrawsIt) {
  const TempFolder temp;
  const std::string folder = temp.path() + "/cdi";
  CdiFiles files(folder);
  EXPECT_TRUE(files.list()->empty());
  ASSERT_TRUE(files.publish(example()));
  EXPECT_EQ(*files.list(), std::vector<std::string>{"dev-1"});
  EXPECT_EQ(process::list_folder(folder)->size(), 1U);
  const auto spec = nlohmann::json::parse(*process::read_text(folder + "/carve-slice-dev-1.json"));
  EXPECT_EQ(spec["kind"], "carve.elasticgpu.io/slice");
  EXPECT_EQ(spec["cdiVersion"], "0.3.0");
  const auto& edits = spec["devices"][0]["containerEdits"];
  EXPECT_EQ(edits["deviceNodes"][0]["path"], "/dev/nvidia3");
  std::set<std::string> inside;
  for (const auto& mount : edits["mounts"]) {
    EXPECT_TRUE(inside.insert(mount["containerPath"]).second)
        << mount;  // a second mount at the same path would replace the first
  }
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu/libcuda.so.580.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so",
        "/usr/lib/carve/driver/libcuda.so.1", "/run/carve/slices/dev-1"}) {
    EXPECT_TRUE(inside.count(path)) << path;
  }
  EXPECT_FALSE(inside.count("/nonexistent/socket"));
  ASSERT_TRUE(files.withdraw("dev-1"));
  EXPECT_TRUE(files.withdraw("dev-1"));
  EXPECT_TRUE(files.list()->empty());
}

TEST(CdiFiles, AHookAddsTheMountedLibrariesToTheLoadersCache) {
  const TempFolder temp;
  const std::string& root = temp.path();
  auto device = example();
  const auto spec_now = [&] {
    return nlohmann::json::parse(CdiFiles::spec_of(device, CdiOptions{"", root, {}}, {}));
  };
  EXPECT_FALSE(spec_now()["devices"][0]["containerEdits"].contains("hooks")) << "a build without the hook program";
  const std::string program = device.library_folder + "/carve-hook";
  ASSERT_TRUE(process::make_folders(root + device.library_folder, 0755));
  ASSERT_TRUE(process::replace_file(root + program, "", 0755));
  const auto spec = spec_now();
  const auto& hook = spec["devices"][0]["containerEdits"]["hooks"][0];
  EXPECT_EQ(hook["hookName"], "createContainer");
  EXPECT_EQ(hook["path"], program) << "a path of the host";
  const std::string usual = "/usr/lib/x86_64-linux-gnu/";
  EXPECT_EQ(hook["args"], nlohmann::json({"carve-hook", "loader-cache", usual + "libcuda.so", usual + "libcuda.so.1",
                                          usual + "libnvidia-ml.so", usual + "libnvidia-ml.so.1"}));
  device.whole = true;
  EXPECT_EQ(spec_now()["devices"][0]["containerEdits"]["hooks"][0]["args"], hook["args"])
      << "the same for a whole card";
  EXPECT_EQ(spec["cdiVersion"], "0.3.0");
}

ino_t inode_of(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_ino;
}

TEST(CdiFiles, WritesAFileAgainOnlyWhenItsContentChanges) {
  const TempFolder temp;
  const std::string folder = temp.path() + "/cdi";
  const std::string path = folder + "/carve-slice-dev-1.json";
  ASSERT_TRUE(CdiFiles(folder).publish(example()));
  const auto first = inode_of(path);
  const std::string kept = folder + "/kept";  // keeps the inode in use, so that the next file has another one
  ASSERT_EQ(::link(path.c_str(), kept.c_str()), 0);
  ASSERT_TRUE(CdiFiles(folder).publish(example()));
  EXPECT_EQ(inode_of(path), first);
  auto upgraded = example();
  upgraded.library_folder = "/var/lib/carve/lib/def";
  ASSERT_TRUE(CdiFiles(folder).publish(upgraded));
  EXPECT_NE(inode_of(path), first);
  EXPECT_NE(process::read_text(path)->find("/var/lib/carve/lib/def"), std::string::npos);
  ASSERT_TRUE(process::replace_file(path, "{", 0644));  // truncated, or written by another program
  ASSERT_TRUE(CdiFiles(folder).publish(upgraded));
  EXPECT_NE(process::read_text(path)->find("/var/lib/carve/lib/def"), std::string::npos);
}

TEST(CdiFiles, ListsAndWithdrawsTemporaryFilesOfADeadAgent) {
  const TempFolder temp;
  const std::string folder = temp.path() + "/cdi";
  CdiFiles files(folder);
  ASSERT_TRUE(files.publish(example()));
  for (const char* file : {"carve-slice-dev-2.json.4711.tmp", "carve-slice-dev-1.json.4711.tmp", "nvidia.json",
                           "carve-slice-dev-3.json.bak", "other.json.12.tmp"}) {
    ASSERT_TRUE(process::replace_file(folder + "/" + file, "{", 0644));
  }
  EXPECT_EQ(*files.list(), (std::vector<std::string>{"dev-1", "dev-2"}));
  ASSERT_TRUE(files.withdraw("dev-2"));
  EXPECT_EQ(*files.list(), std::vector<std::string>{"dev-1"});
  ASSERT_TRUE(files.withdraw("dev-1"));
  EXPECT_EQ(*process::list_folder(folder),
            (std::vector<std::string>{"carve-slice-dev-3.json.bak", "nvidia.json", "other.json.12.tmp"}));
}

TEST(CdiFiles, AWholeCardHasTheDriversFilesAndOnlyAMarkOfCarve) {
  auto device = example();
  device.whole = true;
  device.slice_folder = "/run/carve/whole/dev-1";
  const auto text = CdiFiles::spec_of(device, {}, {});
  EXPECT_EQ(text.find("carve/lib"), std::string::npos);
  EXPECT_EQ(text.find("/usr/lib/carve"), std::string::npos);
  EXPECT_NE(text.find("/opt/driver/libcuda.so.1"), std::string::npos);
  std::set<std::string> of_ours;
  const auto spec = nlohmann::json::parse(text);
  for (const auto& mount : spec["devices"][0]["containerEdits"]["mounts"]) {
    const std::string inside = mount["containerPath"];
    if (inside.rfind("/run/carve", 0) != 0) continue;
    of_ours.insert(inside);
    EXPECT_EQ(mount["hostPath"], device.slice_folder);
  }
  EXPECT_EQ(of_ours, std::set<std::string>{"/run/carve/slices/dev-1"});
}

TEST(CdiFiles, TheEnvironmentOfADialectIsAddedToCarves) {
  auto device = example();
  device.environment = {{"ALIYUN_COM_GPU_MEM_DEV", "15"}, {"ALIYUN_COM_GPU_MEM_IDX", "0"}};
  const auto spec = nlohmann::json::parse(CdiFiles::spec_of(device, {}, {}));
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["env"].dump(),
            R"(["NVIDIA_VISIBLE_DEVICES=void","ALIYUN_COM_GPU_MEM_DEV=15","ALIYUN_COM_GPU_MEM_IDX=0"])");
}

TEST(CdiFiles, AMarkExistsAsLongAsItsSpec) {
  const TempFolder temp;
  const std::string& folder = temp.path();
  CdiFiles files({folder + "/cdi", "", {}, folder + "/whole"});
  auto device = example();
  ASSERT_TRUE(files.publish(device));
  EXPECT_FALSE(process::list_folder(folder + "/whole"));  // the arbiter creates the folder of a fraction
  device.whole = true;
  ASSERT_TRUE(files.publish(device));
  ASSERT_TRUE(files.publish(device));
  EXPECT_EQ(*process::list_folder(folder + "/whole"), std::vector<std::string>{"dev-1"});
  ASSERT_TRUE(files.withdraw("dev-1"));
  EXPECT_TRUE(process::list_folder(folder + "/whole")->empty());
}

}  // namespace
}  // namespace carve::cdi
