#include "adapter/cdi/card_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>

#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

namespace fs = std::filesystem;

class CardFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/carve-cards-XXXXXX";
    folder_ = ::mkdtemp(name);
    options_ = {folder_ + "/card-files", "boot-1", std::nullopt, folder_ + "/dev"};
    fs::create_directories(options_.dev);
    if (::mknod((options_.dev + "/nvidia0").c_str(), S_IFCHR | 0600, makedev(1, 5)) != 0) {
      GTEST_SKIP() << "needs CAP_MKNOD";
    }
    make(1);
    ::chmod(path(0).c_str(), 0666);
    // Where the kernel has a driver for cards, no card has the device numbers of /dev/zero.
    if (process::read_text("/proc/devices").value_or("").find(" nvidia") != std::string::npos)
      GTEST_SKIP() << "a real driver";
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(int card) const { return options_.dev + "/nvidia" + std::to_string(card); }
  void make(int card, mode_t mode = 0666) const {
    ASSERT_EQ(::mknod(path(card).c_str(), S_IFCHR | 0600, makedev(1, 5)), 0);
    ASSERT_EQ(::chmod(path(card).c_str(), mode), 0);
  }
  [[nodiscard]] unsigned mode(const std::string& file) const {
    struct stat info = {};
    return ::lstat(file.c_str(), &info) == 0 ? info.st_mode & 07777U : 0;
  }
  [[nodiscard]] unsigned mode(int card) const { return mode(path(card)); }

  std::string folder_;
  CardFileOptions options_;
};

TEST_F(CardFilesTest, AreClosedAndRestored) {
  ASSERT_EQ(::chmod(path(1).c_str(), 0640), 0);
  ASSERT_EQ(::chown(path(1).c_str(), 7, 44), 0);
  OwnedCardFiles files(options_);
  ASSERT_TRUE(files.own({0, 1, 2})) << "a missing file is not an error";
  EXPECT_EQ(mode(0), 0600U);
  EXPECT_EQ(mode(1), 0600U);
  EXPECT_EQ(mode(options_.record), 0600U);
  const auto left = restore_card_files(options_);
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->empty());
  EXPECT_EQ(mode(0), 0666U);
  EXPECT_EQ(mode(1), 0640U);
  struct stat info = {};
  ASSERT_EQ(::stat(path(1).c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 7U);
  EXPECT_EQ(info.st_gid, 44U);
  EXPECT_FALSE(fs::exists(options_.record));
}

TEST_F(CardFilesTest, ASecondAgentDoesNotRecordTheRightsSetByTheFirst) {
  ASSERT_TRUE(OwnedCardFiles(options_).own({0}));
  const auto record = process::read_text(options_.record);
  ASSERT_TRUE(OwnedCardFiles(options_).own({0}));
  options_.group = 44;
  ASSERT_TRUE(OwnedCardFiles(options_).own({0}));
  EXPECT_EQ(mode(0), 0660U);
  EXPECT_EQ(*process::read_text(options_.record), *record);
  ASSERT_TRUE(restore_card_files(options_));
  EXPECT_EQ(mode(0), 0666U);
}

TEST_F(CardFilesTest, AnAgentKilledBetweenRecordAndChangeLosesNoRights) {
  ASSERT_TRUE(OwnedCardFiles(options_).own({0}));
  for (const unsigned found : {0666U, 0600U, 0000U}) {  // before, between and after the changes
    ASSERT_EQ(::chmod(path(0).c_str(), found), 0);
    OwnedCardFiles next(options_);
    const auto changed = next.own({0});
    ASSERT_TRUE(changed);
    EXPECT_TRUE(changed->empty()) << "no other program changed it";
    EXPECT_EQ(mode(0), 0600U);
  }
  ASSERT_EQ(::chmod(path(0).c_str(), 0666), 0);
  ASSERT_TRUE(restore_card_files(options_)) << "down, without another agent";
  EXPECT_EQ(mode(0), 0666U);
}

TEST_F(CardFilesTest, AFileThatWasOpenedAgainIsReported) {
  OwnedCardFiles files(options_);
  ASSERT_TRUE(files.own({0, 1}));
  ASSERT_EQ(::chmod(path(1).c_str(), 0666), 0);
  const auto changed = files.own({0, 1});
  ASSERT_TRUE(changed);
  EXPECT_EQ(*changed, std::vector<std::string>{path(1)});
  ASSERT_EQ(::unlink(path(1).c_str()), 0);
  make(1);  // as nvidia-modprobe re-creates it
  EXPECT_EQ(files.own({0, 1})->size(), 1U);
  EXPECT_EQ(mode(1), 0600U);
}

TEST_F(CardFilesTest, ALinkAtTheRecordedPathIsNotFollowed) {
  OwnedCardFiles files(options_);
  ASSERT_TRUE(files.own({0}));
  const std::string victim = folder_ + "/shadow";
  ASSERT_TRUE(process::replace_file(victim, "secret", 0600));
  ASSERT_EQ(::unlink(path(0).c_str()), 0);
  ASSERT_EQ(::symlink(victim.c_str(), path(0).c_str()), 0);
  const auto owned = files.own({0, 1});
  ASSERT_FALSE(owned);
  EXPECT_NE(owned.error().what.find("nvidia0: not a device file"), std::string::npos) << owned.error().what;
  EXPECT_EQ(mode(1), 0600U) << "the other files are closed nevertheless";
  const auto left = restore_card_files(options_);
  ASSERT_TRUE(left);
  ASSERT_EQ(left->size(), 1U);
  EXPECT_NE(left->front().find("nvidia0 is another file"), std::string::npos);
  EXPECT_EQ(mode(victim), 0600U);
  EXPECT_EQ(mode(1), 0666U);
}

TEST_F(CardFilesTest, ADisappearedCardIsNotAnErrorOfRestore) {
  ASSERT_TRUE(OwnedCardFiles(options_).own({0, 1}));
  ASSERT_EQ(::unlink(path(0).c_str()), 0);
  const auto left = restore_card_files(options_);
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->empty());
  EXPECT_EQ(mode(1), 0666U);
  EXPECT_FALSE(fs::exists(options_.record));
}

TEST_F(CardFilesTest, ADamagedRecordStopsClosingAndRestoring) {
  ASSERT_TRUE(OwnedCardFiles(options_).own({0}));
  ASSERT_TRUE(process::replace_file(options_.record, "card-files 1 boot-1\nnvidia0 1:5 06", 0600));
  ASSERT_EQ(::chmod(path(1).c_str(), 0644), 0);
  EXPECT_EQ(OwnedCardFiles(options_).own({0, 1}).error().code, Code::kDataLoss);
  EXPECT_EQ(mode(1), 0644U) << "its previous mode could not be recorded";
  EXPECT_EQ(restore_card_files(options_).error().code, Code::kDataLoss);
  EXPECT_TRUE(fs::exists(options_.record));
}

TEST_F(CardFilesTest, TheRecordOfAnotherBootIsDropped) {
  ASSERT_TRUE(OwnedCardFiles(options_).own({0, 1}));
  options_.boot_id = "boot-2";
  ASSERT_EQ(::unlink(path(0).c_str()), 0);
  make(0, 0644);  // the mode of this boot; the other file is on a disk and is unchanged
  OwnedCardFiles files(options_);
  ASSERT_TRUE(files.own({0, 1}));
  ASSERT_TRUE(restore_card_files(options_));
  EXPECT_EQ(mode(0), 0644U);
  EXPECT_EQ(mode(1), 0666U);
}

TEST_F(CardFilesTest, OnlyItsUserReachesASlicesNodes) {
  OwnedCardFiles files(options_);
  ASSERT_TRUE(files.own({0, 1}));
  ASSERT_TRUE(files.give("run-1", 4711, {1, 7}));
  ASSERT_TRUE(files.give("run-1", 4711, {1})) << "again";
  EXPECT_EQ(*files.list(), std::vector<std::string>{"run-1"});
  const std::string node = files.folder_of("run-1") + "/nvidia1";
  EXPECT_EQ(mode(node), 0666U);
  EXPECT_FALSE(fs::exists(files.folder_of("run-1") + "/nvidia0"));
  EXPECT_EQ(mode(files.folder_of("run-1")) & 07U, 0U);
  ASSERT_TRUE(files.withdraw("run-1"));
  ASSERT_TRUE(files.withdraw("run-1"));
  EXPECT_TRUE(files.list()->empty());
}

}  // namespace
}  // namespace carve::cdi
