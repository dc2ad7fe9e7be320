#include "cmd/keep_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "adapter/process/text_file.h"

namespace carve::cmd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
namespace files = std::filesystem;

struct KeepFiles : ::testing::Test {
  const std::string root = ::testing::TempDir() + "/keep_files-" + std::to_string(::getpid());
  const std::string from = root + "/from";
  const std::string to = root + "/to";
  ~KeepFiles() override { files::remove_all(root); }
  KeepFiles() {
    files::remove_all(root);
    files::create_directories(from + "/..2026");
    generation("..2026", "a", "1");
    generation("..2026", "b", "2");
    // Like a Secret that the kubelet mounts: each name is a link through ..data, which is replaced atomically.
    files::create_symlink("..2026", from + "/..data");
    files::create_symlink("..data/a", from + "/a");
    files::create_symlink("..data/b", from + "/b");
  }
  void generation(const std::string& folder, const std::string& name, const std::string& text) const {
    EXPECT_TRUE(write_text_new(from + "/" + folder + "/" + name, text));
  }
  static bool write_text_new(const std::string& path, const std::string& text) {
    return process::replace_file(path, text, 0644).has_value();
  }
};

TEST_F(KeepFiles, WritesOnlyMissingAndChangedFiles) {
  EXPECT_THAT(copy_changed_files(from, to).value(), UnorderedElementsAre("a", "b"));
  EXPECT_EQ(process::read_text(to + "/a").value(), "1");
  EXPECT_THAT(copy_changed_files(from, to).value(), IsEmpty());
  files::create_directories(from + "/..2027");
  generation("..2027", "a", "1");
  generation("..2027", "b", "3");
  files::remove(from + "/..data");
  files::create_symlink("..2027", from + "/..data");
  EXPECT_THAT(copy_changed_files(from, to).value(), ElementsAre("b"));
  EXPECT_EQ(process::read_text(to + "/b").value(), "3");
  EXPECT_EQ(files::exists(to + "/..data"), false);
}

TEST_F(KeepFiles, WritesFilesThatOnlyRootCanRead) {
  ASSERT_TRUE(copy_changed_files(from, to));
  struct stat found {};
  ASSERT_EQ(::stat((to + "/a").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST_F(KeepFiles, ReportsAMissingFolder) {
  EXPECT_FALSE(copy_changed_files(root + "/none", to));
}

}  // namespace
}  // namespace carve::cmd
