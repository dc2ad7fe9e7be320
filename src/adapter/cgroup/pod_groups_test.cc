#include "adapter/cgroup/pod_groups.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "adapter/cgroup/cgroup2.h"
#include "adapter/process/spawn.h"
#include "adapter/process/text_file.h"

namespace carve::cgroup {
namespace {

constexpr char kUid[] = "6f1e1c1e-0a0b-4c4d-8e8f-0123456789ab";

TEST(PodPath, FindsThePodOfBothDrivers) {
  const std::string fs = std::string("/kubepods/burstable/pod") + kUid + "/4e5f";
  EXPECT_EQ(pod_path(fs).pod, kUid);
  EXPECT_EQ(pod_path(fs).container, fs);
  EXPECT_EQ(pod_path(fs + "/made/by/a/tenant").container, fs);
  const std::string systemd =
      "/kubepods.slice/kubepods-besteffort.slice/"
      "kubepods-besteffort-pod6f1e1c1e_0a0b_4c4d_8e8f_0123456789ab.slice/cri-containerd-4e5f.scope";
  EXPECT_EQ(pod_path(systemd).pod, kUid);
  EXPECT_EQ(pod_path(systemd).container, systemd);
  EXPECT_EQ(pod_path("/node-a/kubepods/pod0123456789abcdef0123456789abcdef/x").pod,
            "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(pod_path(std::string("/../../pod") + kUid + "/c").pod,
            kUid);  // as seen from a cgroup namespace
  EXPECT_EQ(pod_path(std::string("/kubepods/pod") + kUid).container, "");
}

TEST(PodPath, IgnoresGroupsThatATenantCreated) {
  const std::string other = "11111111-2222-3333-4444-555555555555";
  const auto path = pod_path(std::string("/kubepods/pod") + kUid + "/4e5f/pod" + other + "/x");
  EXPECT_EQ(path.pod, kUid);
  EXPECT_EQ(path.container, std::string("/kubepods/pod") + kUid + "/4e5f");
}

TEST(PodPath, OtherPathsAreNotInAPod) {
  for (const char* path :
       {"", "/", "/system.slice/x.service", "/pod", "/podman", "/carve/run-1", "/pods/podcast",
        "/machine.slice/libpod-0123456789abcdef0123456789abcdef.scope"}) {
    EXPECT_EQ(pod_path(path).pod, "") << path;
  }
}

/// A fake /proc: a process in uninterruptible sleep, a zombie, a dead leader with a thread that still waits in the
/// driver, and a process of the host.
class FakeProc : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/carve-proc-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void add(int pid, const std::string& cgroup, char state, const std::string& threads = "") {
    const std::string folder = root_ + "/" + std::to_string(pid);
    ASSERT_TRUE(process::make_folders(folder + "/task", 0755));
    ASSERT_TRUE(process::replace_file(folder + "/cgroup", "6:freezer:" + cgroup + "\n0::/\n", 0644));
    const auto status = [](char letter) { return std::string("Name:\ta\\nState:\tZ\nState:\t") + letter + " (x)\n"; };
    ASSERT_TRUE(process::replace_file(folder + "/status", status(state), 0644));
    int thread = pid;
    for (const char one : threads) {
      const auto own = folder + "/task/" + std::to_string(thread++);
      ASSERT_TRUE(process::make_folders(own, 0755));
      ASSERT_TRUE(process::replace_file(own + "/status", status(one), 0644));
    }
  }
  std::string root_;
};

TEST_F(FakeProc, AProcessIsAliveWhileOneOfItsThreadsIs) {
  const std::string group = std::string("/kubepods/pod") + kUid + "/c";
  add(10, group, 'D');
  add(11, group, 'Z', "Z");
  add(12, group, 'Z', "ZD");
  add(13, "/", 'S');
  ASSERT_TRUE(process::make_folders(root_ + "/self", 0755));
  const auto seen = PodGroups(root_).processes();
  ASSERT_TRUE(seen);
  std::vector<std::int32_t> pids;
  for (const auto& one : *seen) {
    pids.push_back(one.pid);
    EXPECT_EQ(one.pod, kUid);
  }
  EXPECT_EQ(pids, (std::vector<std::int32_t>{10, 12}));
  EXPECT_FALSE(PodGroups(root_).process(11));
  EXPECT_FALSE(PodGroups("/nonexistent").processes());
}

/// Without a free descriptor every process that uses a card would seem to have ended.
TEST_F(FakeProc, AProcessThatCannotBeReadCountsAsAlive) {
  const std::string group = std::string("/kubepods/pod") + kUid + "/c";
  add(10, group, 'S');
  add(11, group, 'S');
  std::filesystem::remove(root_ + "/11/status");
  ASSERT_TRUE(process::make_folders(root_ + "/11/status", 0755));  // can be opened but not read
  auto seen = PodGroups(root_).processes();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->size(), 2U);
  std::filesystem::remove(root_ + "/11/cgroup");
  ASSERT_TRUE(process::make_folders(root_ + "/11/cgroup", 0755));
  seen = PodGroups(root_).processes();
  ASSERT_TRUE(seen) << seen.error().what;  // one unreadable process does not hide the others
  EXPECT_EQ(*seen, (std::vector<PodProcess>{{10, kUid, seen->front().group}, {11, "", ""}}));
  EXPECT_FALSE(PodGroups(root_).process(11));
  std::filesystem::remove_all(root_ + "/11");
  EXPECT_EQ(PodGroups(root_).processes()->size(), 1U);
}

TEST_F(FakeProc, WithoutAFreeDescriptorProcessesIsAnError) {
  add(10, std::string("/kubepods/pod") + kUid + "/c", 'S');
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const PodGroups groups(root_);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto seen = groups.processes();
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, Code::kUnavailable);
}

/// Uses the kernel's own hierarchy, v1 or v2, whichever can freeze on this machine.
TEST(PodGroups, FindsAndFreezesTheProcessOfAContainer) {
  std::string top;
  for (const std::string& candidate :
       {std::string("/sys/fs/cgroup/freezer"), Cgroup2::find_mount().value_or("")}) {
    if (top.empty() && !candidate.empty() && ::access(candidate.c_str(), W_OK) == 0)
      top = candidate;
  }
  if (top.empty()) GTEST_SKIP() << "SKIPPED: no writable cgroup hierarchy that freezes";
  const std::string node = top + "/carve-pods-" + std::to_string(::getpid());
  const std::string group = node + "/pod" + kUid + "/container";
  if (!process::make_folders(group, 0755)) GTEST_SKIP() << "SKIPPED: no cgroup can be created in " << top;
  const auto child = process::spawn(
      {.program = "/bin/sh", .args = {"-c", "while :; do :; done"}, .keep = {}, .log_file = {}});
  ASSERT_TRUE(child);
  ASSERT_TRUE(process::write_text(group + "/cgroup.procs", std::to_string(child->pid)));

  PodGroups groups;
  const auto found = groups.process(child->pid);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->pod, kUid);
  ASSERT_FALSE(found->group.empty());
  const auto ticks = [&] {  // CPU time, from the kernel
    std::istringstream stat(*process::read_text("/proc/" + std::to_string(child->pid) + "/stat"));
    std::string word;
    long user = 0;
    for (int i = 0; i < 13; ++i) stat >> word;
    stat >> user;
    return user;
  };
  const auto runs_for = [&](std::chrono::milliseconds time) {
    const long before = ticks();
    std::this_thread::sleep_for(time);
    return ticks() - before;
  };
  const auto is_frozen = [&] {  // v1 and v2 both freeze asynchronously and report completion
    const auto folder = found->group.substr(0, found->group.rfind('/'));
    const auto v1 = process::read_text(found->group).value_or("");
    return v1.rfind("FROZEN", 0) == 0 ||
           process::read_text(folder + "/cgroup.events").value_or("").find("frozen 1") != std::string::npos;
  };
  ASSERT_TRUE(groups.freeze(found->group, true));
  for (int i = 0; i < 1000 && !is_frozen(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(is_frozen());
  EXPECT_EQ(runs_for(std::chrono::milliseconds(300)), 0);  // the measurement itself
  const auto all = groups.processes();
  ASSERT_TRUE(all);
  EXPECT_TRUE(std::any_of(all->begin(), all->end(),
                          [&](const auto& one) { return one.pid == child->pid; }));
  ASSERT_TRUE(groups.freeze(found->group, false));
  long ran = 0;
  for (int i = 0; i < 50 && ran == 0; ++i) ran += runs_for(std::chrono::milliseconds(100));
  EXPECT_GT(ran, 0);
  EXPECT_FALSE(groups.freeze(node + "/pod" + kUid + "/gone/freezer.state", true));

  ASSERT_EQ(::kill(child->pid, SIGKILL), 0);
  ASSERT_TRUE(process::wait_gone(*child, std::chrono::seconds(5)));
  for (const auto& folder : {group, node + "/pod" + kUid, node}) {
    for (int i = 0; i < 50 && ::rmdir(folder.c_str()) != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace
}  // namespace carve::cgroup
