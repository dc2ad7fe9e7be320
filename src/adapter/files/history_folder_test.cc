#include "adapter/files/history_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace carve::files {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HistoryFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char text[] = "/tmp/carve-history-XXXXXX";
    ASSERT_NE(::mkdtemp(text), nullptr);
    top_ = text;
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  std::string top_;
};

TEST_F(HistoryFolderTest, AppendsReadsListsAndRemoves) {
  HistoryFolder folder(top_ + "/history");
  EXPECT_THAT(*folder.list(), IsEmpty());
  ASSERT_TRUE(folder.append("b", "one"));
  ASSERT_TRUE(folder.append("b", "two"));
  ASSERT_TRUE(folder.append("a", "x"));
  EXPECT_THAT(*folder.list(), ElementsAre("a", "b"));
  EXPECT_EQ(*folder.read("b"), "onetwo");
  ASSERT_TRUE(folder.remove("b"));
  EXPECT_TRUE(folder.remove("b"));  // it is gone already
  EXPECT_EQ(folder.read("b").error().code, Code::kNotFound);
}

TEST_F(HistoryFolderTest, OnlyItsOwnerCanReadIt) {
  HistoryFolder folder(top_ + "/history");
  ASSERT_TRUE(folder.append("a", "x"));
  struct stat info = {};
  ASSERT_EQ(::stat((top_ + "/history").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  ASSERT_EQ(::stat((top_ + "/history/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

// A link in the folder must not lead the agent, which is root, to another file.
TEST_F(HistoryFolderTest, DoesNotFollowLinks) {
  HistoryFolder folder(top_);
  std::filesystem::create_symlink(top_ + "/target", top_ + "/link");
  EXPECT_FALSE(folder.append("link", "x"));
  EXPECT_FALSE(std::filesystem::exists(top_ + "/target"));
}

}  // namespace
}  // namespace carve::files
