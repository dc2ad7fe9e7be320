#include "adapter/mountns/enclosure.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "adapter/mountns/library_store.h"
#include "adapter/mountns/mounts.h"
#include "adapter/process/text_file.h"
#include "base/testing/temp_folder.h"
#include "codec/loader_cache.h"

// Every test runs in a child with its own mount namespace. The host is not changed, except for the two empty mount
// points.
namespace carve::mountns {
namespace {

/// Runs `body` in a child. Returns the child's exit code, or 99 when a signal ended it.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid < 0) return -1;
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

class EnclosureTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: needs root";
    ::chmod(root_.c_str(), 0755);
    for (const char* folder : {"/src", "/driver", "/run/slices/s-1", "/run/slices/s-2"}) {
      ASSERT_TRUE(process::make_folders(root_ + folder, 0755));
    }
    ASSERT_TRUE(process::replace_file(root_ + "/src/libcarve-cuda.so", "carve cuda", 0755));
    ASSERT_TRUE(process::replace_file(root_ + "/src/libcarve-nvml.so", "carve nvml", 0755));
    ASSERT_TRUE(process::replace_file(root_ + "/driver/libcuda.so.1", "driver cuda", 0755));
    ASSERT_TRUE(process::replace_file(root_ + "/driver/libnvidia-ml.so.1", "driver nvml", 0755));
    ASSERT_TRUE(process::replace_file(root_ + "/run/slices/s-1/s", "socket", 0666));
    ASSERT_TRUE(process::replace_file(root_ + "/run/agent.sock", "agent", 0666));
    make_socket(root_ + "/run/mask");
    const auto folder = LibraryStore::install(root_ + "/src", root_ + "/lib");
    ASSERT_TRUE(folder) << folder.error().what;
    ASSERT_TRUE(LibraryStore::make_links(*folder, "580.1"));
    ASSERT_TRUE(make_mount_points());
    plan_.links_folder = LibraryStore::links_folder(*folder, "580.1");
    plan_.driver = {root_ + "/driver/libcuda.so.1", root_ + "/driver/libnvidia-ml.so.1"};
    plan_.slice_folder = root_ + "/run/slices/s-1";
    plan_.runtime_folder = root_ + "/run";
    plan_.masking_socket = root_ + "/run/mask";
  }
  static void make_socket(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::chmod(path.c_str(), 0666);
    ::close(fd);
  }
  static bool reads(const std::string& path, const std::string& text) {
    const auto got = process::read_text(path);
    if (!got || *got != text) {
      fprintf(stderr, "%s: %s, not %s\n", path.c_str(), got ? got->c_str() : got.error().what.c_str(),
              text.c_str());
      return false;
    }
    return true;
  }
  int look() const {
    const std::string usual = "/usr/lib/x86_64-linux-gnu/";
    if (!reads(usual + "libcuda.so.1", "carve cuda") || !reads(usual + "libcuda.so", "carve cuda")) return 11;
    if (!reads(usual + "libcuda.so.580.1", "carve cuda")) return 12;
    if (!reads(usual + "libnvidia-ml.so.1", "carve nvml")) return 13;
    if (!reads("/usr/lib/carve/driver/libcuda.so.1", "driver cuda")) return 14;
    if (!reads("/usr/lib/carve/driver/libnvidia-ml.so.1", "driver nvml")) return 15;
    if (!reads("/run/carve/slices/s-1/s", "socket")) return 16;
    if (::access("/run/carve/slices/s-2", F_OK) == 0) return 17;
    if (::access((root_ + "/run/agent.sock").c_str(), F_OK) == 0) return 18;
    if (!reads(root_ + "/driver/libcuda.so.1", "carve cuda")) return 19;
    if (::open("/run/carve/x", O_CREAT | O_WRONLY, 0600) >= 0) return 20;
    return finds_by_the_loaders_cache("libcuda.so.1") && finds_by_the_loaders_cache("libnvidia-ml.so") ? 0 : 21;
  }
  /// The libraries that `ldconfig -p` lists, including those of the host's cache.
  static bool finds_by_the_loaders_cache(const std::string& name) {
    const auto bytes = process::read_text("/etc/ld.so.cache", 16U << 20U);
    const auto entries = bytes ? codec::loader_entries(*bytes) : Result<std::vector<codec::LoaderEntry>>();
    const auto has = [&](const codec::LoaderEntry& wanted) {
      return std::find(entries->begin(), entries->end(), wanted) != entries->end();
    };
    const bool found = entries && has({name, "/usr/lib/x86_64-linux-gnu/" + name});
    return found &&
           std::any_of(entries->begin(), entries->end(), [](const auto& one) { return one.name == "libc.so.6"; });
  }
  TempFolder temp_;
  const std::string& root_ = temp_.path();
  EnclosurePlan plan_;
};

TEST_F(EnclosureTest, RootSeesOnlyTheSlice) {
  EXPECT_EQ(in_child([&] {
              if (const auto entered = enter(plan_); !entered) {
                fprintf(stderr, "%s\n", entered.error().what.c_str());
                return 1;
              }
              return look();
            }),
            0);
}

TEST_F(EnclosureTest, AnotherUserSeesTheSameThroughAUserNamespace) {
  EXPECT_EQ(in_child([&] {
              // The build may be in a folder that only root can enter, and enter() returns to the working directory.
              if (::chdir("/") != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
              ::prctl(PR_SET_DUMPABLE, 1);  // as after an execve() by that user
              plan_.user_namespace = true;
              if (const auto entered = enter(plan_); !entered) {
                fprintf(stderr, "%s\n", entered.error().what.c_str());
                return entered.error().code == Code::kPermissionDenied ? 77 : 1;
              }
              return ::getuid() == 65534 ? look() : 2;
            }),
            0);
}

TEST_F(EnclosureTest, OtherCardsCannotBeOpened) {
  // A private /dev/nvidia0 and /dev/nvidia1, regardless of this machine's cards.
  EXPECT_EQ(in_child([&] {
              if (!separate(false) || !cover_with_tmpfs("/mnt")) return 1;
              for (const char* name : {"/mnt/nvidia0", "/mnt/nvidia1"}) {
                if (::mknod(name, S_IFCHR | 0666, ::makedev(1, 3)) != 0) return 2;
              }
              ::mount(nullptr, "/mnt", nullptr, MS_REMOUNT, nullptr);
              if (::mount("/mnt", "/dev", nullptr, MS_BIND | MS_REC, nullptr) != 0) return 3;
              ::mount(nullptr, "/dev", nullptr, MS_REMOUNT | MS_BIND, nullptr);  // allow device nodes
              plan_.hidden_minors = {1};
              if (const auto entered = enter(plan_); !entered) {
                fprintf(stderr, "%s\n", entered.error().what.c_str());
                return 4;
              }
              if (::open("/dev/nvidia1", O_RDWR) >= 0 || errno != ENXIO) return 5;
              struct stat info = {};
              return ::stat("/dev/nvidia0", &info) == 0 && S_ISCHR(info.st_mode) ? 0 : 6;
            }),
            0);
}

TEST_F(EnclosureTest, AWholeCardHasTheDriversOwnFiles) {
  EXPECT_EQ(in_child([&] {
              plan_.whole = true;
              plan_.slice_folder.clear();
              if (!enter(plan_)) return 1;
              if (!reads("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "driver cuda")) return 2;
              return finds_by_the_loaders_cache("libcuda.so.1") ? 0 : 3;
            }),
            0);
}

TEST_F(EnclosureTest, ErrorsNameTheMissingFile) {
  EXPECT_EQ(in_child([&] {
              plan_.driver.nvml = "/nonexistent/libnvidia-ml.so.1";
              const auto entered = enter(plan_);
              return !entered && entered.error().what.find("/nonexistent") != std::string::npos ? 0 : 1;
            }),
            0);
  const auto missing = LibraryStore::install("/nonexistent", root_ + "/lib");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().what.find("libcarve-cuda.so"), std::string::npos);
}

}  // namespace
}  // namespace carve::mountns
