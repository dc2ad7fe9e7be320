#include "adapter/cdi/container_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

namespace fs = std::filesystem;

const std::vector<codec::LoaderEntry> kDriver = {
    {"libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"},
    {"libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}};

/// A container's file system before a process uses it as its root.
class ContainerCache : public testing::Test {
 protected:
  ContainerCache() {
    char name[] = "/tmp/carve-root-XXXXXX";
    base_ = ::mkdtemp(name);
    root_ = base_ + "/root";
    fs::create_directories(root_ + "/etc");
  }
  ~ContainerCache() override { fs::remove_all(base_); }

  void image_has(const std::vector<codec::LoaderEntry>& libraries) const {
    ASSERT_TRUE(process::replace_file(root_ + "/etc/ld.so.cache", *codec::with_libraries("", libraries), 0644));
  }
  [[nodiscard]] std::vector<codec::LoaderEntry> entries() const {
    const auto bytes = process::read_text(root_ + "/etc/ld.so.cache");
    return bytes ? codec::loader_entries(*bytes).value_or(std::vector<codec::LoaderEntry>())
                 : std::vector<codec::LoaderEntry>();
  }
  /// Runs `body` in its own mount namespace, so that its mounts disappear afterwards. Returns the body's result.
  static int in_namespace(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child < 0) return -1;
    if (child == 0) {
      const bool own = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
      ::_exit(own ? body() : 97);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
  }
  std::string base_, root_;
};

TEST_F(ContainerCache, AddsTheDriverToTheCacheOfTheImage) {
  image_has({{"libm.so.6", "/lib/libm.so.6"}, {"libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"}});
  ASSERT_TRUE(add_to_cache(root_, kDriver));
  EXPECT_EQ(entries(), (std::vector<codec::LoaderEntry>{kDriver[1], {"libm.so.6", "/lib/libm.so.6"}, kDriver[0]}));
  struct stat info = {};
  ASSERT_EQ(::stat((root_ + "/etc/ld.so.cache").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0644U);
  const auto inode = info.st_ino;
  ASSERT_TRUE(add_to_cache(root_, kDriver)) << "a container that is restarted";
  ASSERT_EQ(::stat((root_ + "/etc/ld.so.cache").c_str(), &info), 0);
  EXPECT_EQ(info.st_ino, inode) << "the file is not written again";
  EXPECT_EQ(process::list_folder(root_ + "/etc")->size(), 1U) << "no temporary file remains";
}

TEST_F(ContainerCache, CreatesACacheInAnImageWithoutOne) {
  ASSERT_TRUE(add_to_cache(root_, kDriver));
  EXPECT_EQ(entries(), (std::vector<codec::LoaderEntry>{kDriver[1], kDriver[0]}));
}

TEST_F(ContainerCache, DoesNotChangeAnImageWithoutEtc) {
  fs::remove(root_ + "/etc");
  EXPECT_FALSE(add_to_cache(root_, kDriver));
  EXPECT_TRUE(process::list_folder(root_)->empty());
}

TEST_F(ContainerCache, DoesNotFollowSymbolicLinksOutOfTheContainer) {
  // /etc is a link to a folder of the host that has a cache: by an absolute path, and by a path with "..".
  const std::string victim = base_ + "/victim";
  fs::create_directories(victim);
  ASSERT_TRUE(process::replace_file(victim + "/ld.so.cache", *codec::with_libraries("", {{"liba.so.1", "/a"}}), 0644));
  const auto before = *process::read_text(victim + "/ld.so.cache");
  for (const std::string& link : {victim, std::string("../victim"), std::string("/proc/self/root") + victim}) {
    fs::remove_all(root_ + "/etc");
    fs::create_directory_symlink(link, root_ + "/etc");
    EXPECT_FALSE(add_to_cache(root_, kDriver)) << link;
    EXPECT_EQ(*process::read_text(victim + "/ld.so.cache"), before) << link;
  }
  fs::remove(root_ + "/etc");
  fs::create_directories(root_ + "/etc");
  fs::create_symlink(victim + "/ld.so.cache", root_ + "/etc/ld.so.cache");
  EXPECT_TRUE(add_to_cache(root_, kDriver)) << "the link has no target in the container: it gets its own cache";
  EXPECT_EQ(*process::read_text(victim + "/ld.so.cache"), before);
  EXPECT_FALSE(fs::is_symlink(root_ + "/etc/ld.so.cache"));
}

TEST_F(ContainerCache, APipeOrAnInvalidCacheIsAnErrorAndDoesNotBlock) {
  ASSERT_EQ(::mkfifo((root_ + "/etc/ld.so.cache").c_str(), 0644), 0);
  EXPECT_FALSE(add_to_cache(root_, kDriver));
  fs::remove(root_ + "/etc/ld.so.cache");
  ASSERT_TRUE(process::replace_file(root_ + "/etc/ld.so.cache", "nonsense", 0644));
  EXPECT_FALSE(add_to_cache(root_, kDriver));
  EXPECT_EQ(*process::read_text(root_ + "/etc/ld.so.cache"), "nonsense");
}

TEST_F(ContainerCache, MountsTheNewCacheOnAReadOnlyRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: needs root";
  image_has({{"libm.so.6", "/lib/libm.so.6"}});
  const auto before = *process::read_text(root_ + "/etc/ld.so.cache");
  EXPECT_EQ(in_namespace([&] {
              const char* root = root_.c_str();
              if (::mount(root, root, nullptr, MS_BIND, nullptr) != 0) return 1;
              if (::mount(nullptr, root, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) return 2;
              if (const auto added = add_to_cache(root_, kDriver); !added) {
                std::fprintf(stderr, "%s\n", added.error().what.c_str());
                return 3;
              }
              if (entries() != std::vector<codec::LoaderEntry>{kDriver[1], {"libm.so.6", "/lib/libm.so.6"}, kDriver[0]})
                return 4;
              if (::open((root_ + "/etc/ld.so.cache").c_str(), O_WRONLY) >= 0 || errno != EROFS) return 5;
              if (process::list_folder(root_ + "/etc")->size() != 1) return 6;  // the tmpfs is unmounted
              return add_to_cache(root_, kDriver) ? 0 : 7;             // nothing is left to add
            }),
            0);
  EXPECT_EQ(*process::read_text(root_ + "/etc/ld.so.cache"), before) << "the image's file is unchanged";
}

TEST_F(ContainerCache, DoesNotChangeAFolderOfTheHostThatIsMountedAtEtc) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: needs root";
  const std::string hosts = base_ + "/hosts-etc";
  fs::create_directories(hosts);
  ASSERT_TRUE(process::replace_file(hosts + "/ld.so.cache", *codec::with_libraries("", {{"liba.so.1", "/a"}}), 0644));
  const auto before = *process::read_text(hosts + "/ld.so.cache");
  EXPECT_EQ(in_namespace([&] {
              if (::mount(hosts.c_str(), (root_ + "/etc").c_str(), nullptr, MS_BIND, nullptr) != 0) return 1;
              if (!add_to_cache(root_, kDriver)) return 2;
              return entries().size() == 3 ? 0 : 3;
            }),
            0);
  EXPECT_EQ(*process::read_text(hosts + "/ld.so.cache"), before);
}

TEST_F(ContainerCache, FindsTheRootByTheBundle) {
  const auto configure = [&](const std::string& text) {
    ASSERT_TRUE(process::replace_file(base_ + "/config.json", text, 0644));
  };
  const std::string state = R"({"ociVersion":"1.0.2","id":"x","status":"creating","bundle":")" + base_ + "\"}";
  configure(R"({"process":{"env":["A=\u00fc"]},"root":{"path":"root","readonly":true}})");
  EXPECT_EQ(container_root(state).value_or(""), base_ + "/root");
  configure(R"({"root":{"path":"/var/lib/containers/x/merged"}})");
  EXPECT_EQ(container_root(state).value_or(""), "/var/lib/containers/x/merged");
  for (const char* text : {"", "{}", R"({"root":{}})", R"({"root":3})"}) {
    configure(text);
    EXPECT_FALSE(container_root(state)) << text;
  }
  for (const char* text : {"", "[]", "{}", R"({"bundle":3})", R"({"bundle":"/nonexistent"})"})
    EXPECT_FALSE(container_root(text)) << text;
}

}  // namespace
}  // namespace carve::cdi
