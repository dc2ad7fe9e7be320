#include "adapter/mountns/library_users.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace carve::mountns {
namespace {

namespace fs = std::filesystem;

constexpr char kOld[] = "00000000000000aa";
constexpr char kNew[] = "00000000000000bb";

/// A library folder and a fake /proc in a temporary folder.
class LibraryUsers : public testing::Test {
 protected:
  LibraryUsers() {
    std::string name = "/tmp/carve-users-XXXXXX";
    root_ = ::mkdtemp(name.data());
    for (const char* id : {kOld, kNew}) put("/lib/" + std::string(id) + "/libcarve-cuda.so", "");
    process(1, "mnt:[1]", "22 1 254:0 / / rw - ext4 /dev/vda rw\n");
  }
  ~LibraryUsers() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void process(int pid, const std::string& space, const std::string& mounts) {
    const std::string folder = "/proc/" + std::to_string(pid);
    put(folder + "/mountinfo", mounts);
    put(folder + "/status", "Name:\tx\nState:\tS (sleeping)\n");
    fs::create_directories(root_ + folder + "/ns");
    fs::create_symlink(space, root_ + folder + "/ns/mnt");
  }
  [[nodiscard]] std::vector<std::string> unused(const std::vector<std::string>& specs = {}) const {
    const auto found = unused_builds(root_ + "/lib", root_ + "/lib/" + kNew, specs, root_ + "/proc");
    EXPECT_TRUE(found) << found.error().what;
    return found.value_or(std::vector<std::string>());
  }
  [[nodiscard]] std::vector<std::string> the_old() const { return {root_ + "/lib/" + kOld}; }

  std::string root_;
};

TEST_F(LibraryUsers, EveryBuildWithoutAUserExceptTheCurrentOneIsUnused) { EXPECT_EQ(unused(), the_old()); }

TEST_F(LibraryUsers, AContainerThatMountsABuildUsesIt) {
  process(7, "mnt:[2]",
          "199 177 254:0 /carve/lib/00000000000000aa/libcarve-cuda.so /usr/lib64/libcuda.so.1 ro - ext4 /dev/vdb rw\n");
  EXPECT_TRUE(unused().empty());
}

TEST_F(LibraryUsers, ARunWithAnOverlayOfABuildUsesIt) {
  process(7, "mnt:[2]",
          "50 22 0:40 / /usr/lib ro - overlay none ro,lowerdir=/var/lib/carve/lib/00000000000000aa/links-1:/usr/lib\n");
  EXPECT_TRUE(unused().empty());
}

TEST_F(LibraryUsers, AProcessWithAnUnreadableNamespaceUsesTheBuildsItMounts) {
  process(7, "mnt:[2]",
          "199 177 254:0 /carve/lib/00000000000000aa/libcarve-cuda.so /usr/lib/libcuda.so.1 ro - ext4 /dev/vdb rw\n");
  fs::remove(root_ + "/proc/7/ns/mnt");
  process(8, "mnt:[3]", "22 1 254:0 / / rw - ext4 /dev/vda rw\n");
  fs::remove(root_ + "/proc/8/ns/mnt");
  EXPECT_TRUE(unused().empty());
  fs::remove_all(root_ + "/proc/7");
  EXPECT_EQ(unused(), the_old());
}

TEST_F(LibraryUsers, ASpecThatNamesABuildUsesIt) {
  EXPECT_TRUE(unused({R"({"hostPath":"/var/lib/carve/lib/00000000000000aa/libcarve-cuda.so"})"}).empty());
}

TEST_F(LibraryUsers, IgnoresFoldersThatAreNotBuilds) {
  put("/lib/00000000000000aa.kept/file", "");
  put("/lib/mine/file", "");
  EXPECT_EQ(unused(), the_old());
}

TEST_F(LibraryUsers, AProcessThatCannotBeReadIsAnError) {
  process(7, "mnt:[2]", "");
  fs::remove(root_ + "/proc/7/mountinfo");
  EXPECT_FALSE(unused_builds(root_ + "/lib", root_ + "/lib/" + kNew, {}, root_ + "/proc"));
  put("/proc/7/status", "Name:\tx\nState:\tZ (zombie)\n");
  EXPECT_EQ(unused(), the_old());
  fs::remove(root_ + "/proc/7/status");
  EXPECT_EQ(unused(), the_old()) << "the process has ended";
}

TEST_F(LibraryUsers, RemovesABuildWithItsContent) {
  ASSERT_TRUE(remove_build(root_ + "/lib/" + kOld));
  EXPECT_TRUE(unused().empty());
  EXPECT_TRUE(fs::exists(root_ + "/lib/" + kNew));
}

}  // namespace
}  // namespace carve::mountns
