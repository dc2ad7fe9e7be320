#include "adapter/process/proc_fs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "adapter/process/spawn.h"
#include "adapter/process/testing/slow_file.h"
#include "adapter/process/text_file.h"
#include "base/fd.h"
#include "base/testing/temp_folder.h"

namespace carve::process {
namespace {

using Ids = std::vector<std::string>;

TEST(SlicesInMounts, AContainerHasThoseThatWereMountedForIt) {
  EXPECT_EQ(slices_in_mounts(
                "612 580 0:99 / / rw - overlay overlay rw\n"
                "640 612 0:31 /slices/s-1a-7 /run/carve/slices/s-1a-7 ro,nosuid - tmpfs tmpfs rw\n"
                "641 612 0:31 /slices/s-1a-9 /run/carve/slices/s-1a-9 ro,nosuid - tmpfs tmpfs rw\n"),
            (Ids{"s-1a-7", "s-1a-9"}));
}

TEST(SlicesInMounts, AFolderThatIsGoneFromTheHostIsStillMounted) {
  EXPECT_EQ(slices_in_mounts("640 612 0:31 /whole/s-1a-7//deleted /run/carve/slices/s-1a-7 ro - tmpfs tmpfs rw\n"),
            (Ids{"s-1a-7"}));
}

TEST(SlicesInMounts, TheHostAndATenantsOwnMountsAreNoSlices) {
  // The host's own tmpfs for all slices, another's folder under a name that is not its own, a file deeper down.
  EXPECT_EQ(slices_in_mounts("30 1 0:31 / /run/carve rw - tmpfs tmpfs rw\n"
                             "31 30 0:32 / /run/carve/slices rw - tmpfs tmpfs rw\n"
                             "640 612 0:31 /slices/s-1a-7 /run/carve/slices/s-1a-8 ro - tmpfs tmpfs rw\n"
                             "641 612 0:31 /x/s /run/carve/slices/s-1a-8/s ro - tmpfs tmpfs rw\n"
                             "642 612 0:31\n\n"),
            Ids());
}

TEST(Status, TheKernelsLinesAreRead) {
  constexpr char kText[] = "Name:\tPPid: 7\nState:\tZ (zombie)\nTgid:\t12\nPPid:\t1\nUid:\t0\t5\t0\t0\nGroups:\t \n";
  EXPECT_EQ(status_value(kText, "PPid"), "1");
  EXPECT_EQ(status_value(kText, "Uid"), "0\t5\t0\t0");
  EXPECT_EQ(status_value(kText, "Groups"), "");
  EXPECT_EQ(status_value(kText, "Threads"), "");
  EXPECT_EQ(status_value("", "PPid"), "");
  EXPECT_EQ(status_value("PPid:", "PPid"), "");
  EXPECT_TRUE(has_ended(kText));
  EXPECT_TRUE(has_ended("State:\tX (dead)")) << "the text may end anywhere";
  EXPECT_TRUE(has_ended(""));
  EXPECT_FALSE(has_ended("Name:\tZ\nState:\tD (disk sleep)\n"));
}

TEST(ProcFsTest, AProcessInItsOwnMountNamespaceIsDetected) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount";
  const TempFolder temp;
  const std::string& folder = temp.path();
  ASSERT_TRUE(make_folders(folder + "/s-1a-7", 0755));
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(done[1]);
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0 &&
                         make_folders("/run/carve/slices/s-1a-7", 0755).has_value() &&
                         make_folders("/run/carve/slices/a-decoy", 0755).has_value() &&
                         ::mount((folder + "/s-1a-7").c_str(), "/run/carve/slices/s-1a-7", nullptr, MS_BIND,
                                 nullptr) == 0;
    char byte = mounted ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) == 1) static_cast<void>(!::read(done[0], &byte, 1));
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(ProcFs().slices_seen_by(child), Ids{"s-1a-7"});
  EXPECT_EQ(ProcFs().slices_seen_by(1), Ids());
  ASSERT_EQ(::rmdir((folder + "/s-1a-7").c_str()), 0);
  EXPECT_EQ(ProcFs().slices_seen_by(child), Ids{"s-1a-7"});  // the kernel's own spelling of what is deleted
  ::close(done[1]);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(ProcFs().slices_seen_by(child), Ids());
}

TEST(ProcFsTest, ProcessesWithACardsDeviceFileOpenAreFound) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a device node";
  const auto mine = [] {
    const auto pids = ProcFs().holders_of_card(61);
    return std::count(pids.begin(), pids.end(), ::getpid());
  };
  EXPECT_EQ(mine(), 0);
  constexpr char kNode[] = "/dev/nvidia61";  // with the numbers of /dev/null: no driver has so many cards here
  ASSERT_EQ(::mknod(kNode, S_IFCHR | 0600, makedev(1, 3)), 0);
  {
    const Fd held(::open(kNode, O_RDWR | O_CLOEXEC));
    EXPECT_EQ(mine(), 1);
  }
  EXPECT_EQ(mine(), 0);
  ::unlink(kNode);
}

// Such a process holds a lock of the kernel that most files below /proc/<pid> need.
TEST(ProcFsTest, AProcessThatIsBlockedInExecIsReadInTimeAndCannotHide) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount";
  const TempFolder temp;
  const std::string& folder = temp.path();
  std::vector<pid_t> blocked;
  {
    SlowFile file(folder + "/slow");
    if (!file.mounted()) GTEST_SKIP() << "SKIPPED: no file system in user space here";
    for (const bool in_slice : {true, false}) {
      const pid_t child = ::fork();
      if (child == 0) {
        if (::unshare(CLONE_NEWNS) != 0) ::_exit(1);
        if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(1);
        if (in_slice && (::mount("tmpfs", "/run", "tmpfs", 0, nullptr) != 0 ||
                         !make_folders("/run/s-1a-7", 0755) || !make_folders("/run/carve/slices/s-1a-7", 0755) ||
                         ::mount("/run/s-1a-7", "/run/carve/slices/s-1a-7", nullptr, MS_BIND, nullptr) != 0)) {
          ::_exit(1);
        }
        if (::open(file.path().c_str(), O_RDONLY | O_CLOEXEC) < 0) ::_exit(1);
        ::execl("/bin/true", "true", nullptr);
        ::_exit(1);
      }
      blocked.push_back(child);
      ASSERT_TRUE(file.wait_for_close());
    }
    const ProcFs processes;
    for (int round = 0; round < 2; ++round) {
      const auto holders = processes.holders_of_card(60);
      EXPECT_EQ(std::count(holders.begin(), holders.end(), blocked[0]), 1) << "it is in a slice";
      EXPECT_EQ(std::count(holders.begin(), holders.end(), blocked[1]), 0);
    }
    const DeviceUser user = processes.device_user(blocked[1]);
    EXPECT_EQ(user.uid, ::geteuid());
    EXPECT_EQ(user.program, "?");
    EXPECT_TRUE(user.computes) << "no proof of innocence";
    EXPECT_FALSE(processes.only_inherited(blocked[0], ::getpid()));
  }
  for (const pid_t child : blocked) ::waitpid(child, nullptr, 0);
}

TEST(ProcFsTest, UserProgramAndCudaOfAHolderAreRead) {
  const DeviceUser self = ProcFs().device_user(::getpid());
  EXPECT_EQ(self.uid, ::geteuid());
  EXPECT_NE(self.program.find("adapter"), std::string::npos) << self.program;
  const DeviceUser gone = ProcFs().device_user(0);
  EXPECT_EQ(gone.uid, std::numeric_limits<std::uint32_t>::max());
  EXPECT_TRUE(gone.computes) << "no proof of innocence";
}

/// The fork of a process that has the file open, and the same fork after it opened the file itself.
TEST(ProcFsTest, AForkWithoutOwnFilesIsDetected) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a device node";
  constexpr char kNode[] = "/dev/nvidia62";
  ASSERT_EQ(::mknod(kNode, S_IFCHR | 0600, makedev(1, 3)), 0);
  {
    const Fd held(::open(kNode, O_RDWR | O_CLOEXEC));
    int go[2];
    int done[2];
    ASSERT_EQ(::pipe(go) | ::pipe(done), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      char byte = 0;
      if (::read(go[0], &byte, 1) != 1) ::_exit(1);
      static_cast<void>(::open(kNode, O_RDWR));
      if (::write(done[1], "y", 1) != 1 || ::read(go[0], &byte, 1) < 0) ::_exit(1);
      ::_exit(0);
    }
    EXPECT_TRUE(ProcFs().only_inherited(child, ::getpid()));
    EXPECT_FALSE(ProcFs().only_inherited(child, 1)) << "another process";
    char byte = 'g';
    ASSERT_EQ(::write(go[1], &byte, 1), 1);
    ASSERT_EQ(::read(done[0], &byte, 1), 1);
    EXPECT_FALSE(ProcFs().only_inherited(child, ::getpid()));
    ASSERT_EQ(::write(go[1], &byte, 1), 1);
    ::waitpid(child, nullptr, 0);
    for (const int fd : {go[0], go[1], done[0], done[1]}) ::close(fd);
  }
  EXPECT_FALSE(ProcFs().only_inherited(::getpid(), ::getpid())) << "it has no such file";
  ::unlink(kNode);
}

TEST(ProcFsTest, OnlyAProcessThatStillMatchesIsKilled) {
  const auto child = spawn({.program = "/bin/sleep", .args = {"100"}, .keep = {}, .log_file = {}});
  ASSERT_TRUE(child);
  EXPECT_FALSE(ProcFs().kill(child->pid, [] { return false; }).value_or(true));
  EXPECT_FALSE(wait_gone(*child, std::chrono::milliseconds(100)));
  EXPECT_TRUE(ProcFs().kill(child->pid, [] { return true; }).value_or(false));
  EXPECT_TRUE(wait_gone(*child, std::chrono::seconds(5)));
  EXPECT_FALSE(ProcFs().kill(child->pid, [] { return true; }).value_or(true)) << "it is gone";
  EXPECT_FALSE(ProcFs().kill(0, [] { return true; }).value_or(true));
}

TEST(ProcFsTest, AProcessThatCannotBePinnedIsNotReportedAsEnded) {
  ProcFs processes;
  EXPECT_FALSE(processes.kill(0, [] { return false; }).value_or(true));  // UBSan's first look at a type takes a pipe
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto killed = processes.kill(::getpid(), [] { return false; });
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().code, Code::kResourceExhausted) << killed.error().what;
}

}  // namespace
}  // namespace carve::process
