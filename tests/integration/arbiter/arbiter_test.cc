#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "abi/control.h"
#include "tests/integration/arbiter/fixture.h"

// The real arbiter process, the real client of the agent, and tenants that speak the ABI directly.
namespace carve::arbiter_test {
namespace {

TEST_F(ArbiterTest, AHelloIsAnsweredWithPagesThatContainTheLimits) {
  put(order("one", 30, ShareClass::kBurst, 2));
  RawClient client = connect("one");
  ASSERT_EQ(client.welcome.status, abi::WelcomeStatus::kOk);
  EXPECT_EQ(client.welcome.host_pid, getpid());
  EXPECT_NE(client.welcome.instance, 0U);
  ASSERT_EQ(client.cards.size(), 2U);
  for (int i = 0; i < 2; ++i) {
    const abi::GrantPage& grant = *client.cards[static_cast<std::size_t>(i)].grant;
    EXPECT_EQ(grant.magic, abi::kGrantMagic);
    EXPECT_EQ(grant.card_uuid, "GPU-" + std::to_string(i));
    EXPECT_EQ(grant.memory_limit.raw, 4ULL << 30);
    EXPECT_EQ(grant.context_bytes, 400ULL << 20);
    EXPECT_EQ(grant.compute_limit.raw, 30U);
    EXPECT_EQ(grant.share_class, abi::ShareClass::kBurst);
    EXPECT_EQ(client.cards[static_cast<std::size_t>(i)].account->magic, abi::kAccountMagic);
  }
  EXPECT_TRUE(eventually([&] { return mode_of(client.card()) == abi::LeaseMode::kSolo; })) << "alone on the card";
  const std::uint64_t beat = client.card().grant->heartbeat_ns.load_relaxed();
  EXPECT_TRUE(eventually([&] { return client.card().grant->heartbeat_ns.load_relaxed() > beat + 50 * kMs; }));
}

TEST_F(ArbiterTest, ATenantCannotWriteTheGrantNorResizeTheAccount) {
  put(order("ro"));
  RawClient client = connect("ro");
  ASSERT_FALSE(client.cards.empty());
  const int grant = client.card().grant_fd.get();
  const int account = client.card().account_fd.get();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, grant, 0), MAP_FAILED);
  EXPECT_EQ(open(("/proc/self/fd/" + std::to_string(grant)).c_str(), O_RDWR), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(open(("/proc/self/fd/" + std::to_string(grant)).c_str(), O_RDONLY | O_TRUNC), -1);
  EXPECT_EQ(ftruncate(grant, 0), -1);
  EXPECT_EQ(mprotect(const_cast<abi::GrantPage*>(client.card().grant), 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(fchmod(grant, 0666), -1);
  EXPECT_EQ(ftruncate(account, 0), -1);
  EXPECT_EQ(ftruncate(account, 1 << 24), -1);
  EXPECT_EQ(fcntl(account, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST_F(ArbiterTest, NvmlOnlyReadsAndTakesNoAccountEntry) {
  put(order("nvml"));
  RawClient reader = connect("nvml", abi::LibraryKind::kNvml);
  ASSERT_EQ(reader.welcome.status, abi::WelcomeStatus::kOk);
  ASSERT_EQ(reader.cards.size(), 1U);
  EXPECT_EQ(reader.card().account, nullptr) << "its account page can be mapped for writing";
  EXPECT_NE(mmap(nullptr, abi::kAccountPageBytes, PROT_READ, MAP_SHARED, reader.card().account_fd.get(), 0),
            MAP_FAILED);
  ASSERT_TRUE(listed("nvml").has_value());
  EXPECT_TRUE(listed("nvml")->processes.empty());
}

TEST_F(ArbiterTest, ANewerAbiGetsTheSupportedVersions) {
  put(order("abi"));
  const auto client = hello(runtime_, "abi", abi::LibraryKind::kCuda, 77);
  ASSERT_TRUE(client.has_value());
  EXPECT_EQ(client->welcome.status, abi::WelcomeStatus::kAbiUnsupported);
  EXPECT_EQ(client->welcome.abi, abi::kPageAbi);
  EXPECT_TRUE(client->cards.empty());
}

TEST_F(ArbiterTest, AKilledProcessFreesItsAccountEntry) {
  put(order("kill"));
  RawClient watcher = connect("kill");
  abi::AccountEntry& second = watcher.card().account->entries[1];
  for (int round = 0; round < 3; ++round) {
    Child child([&] {
      auto mine = hello(runtime_, "kill");
      if (!mine || mine->welcome.entry != 1) _exit(1);
      mine->card().entry->used_bytes.store_seq_cst(1 << 20);
      mine->card().entry->busy_ns.store_seq_cst(1000);
      mine->card().entry->busy.store_seq_cst(1);
    });
    ASSERT_TRUE(child.wait_ready()) << "round " << round << ": not entry 1";
    EXPECT_EQ(second.used_bytes.load_seq_cst(), 1U << 20);
    EXPECT_EQ(listed("kill")->cards[0].announced, Bytes::mib(1));
    child.kill();
    EXPECT_TRUE(eventually([&] { return second.used_bytes.load_seq_cst() == 0 && second.busy.load_seq_cst() == 0; }));
    EXPECT_TRUE(eventually([&] { return listed("kill")->processes.size() == 1; }));
    EXPECT_EQ(listed("kill")->cards[0].busy_ns, 1000U * static_cast<unsigned>(round + 1)) << "time never decreases";
  }
}

TEST_F(ArbiterTest, SixtyFourProcessesHaveSixtyFourAccountEntries) {
  put(order("many", 50, ShareClass::kBurst, 2));
  RawClient watcher = connect("many");
  std::vector<Child> children;
  for (int i = 0; i < 64; ++i) {
    children.emplace_back([&] {
      auto mine = hello(runtime_, "many");
      if (!mine || mine->cards.size() != 2) _exit(1);
      mine->cards[0].entry->used_bytes.store_seq_cst(1000);
      mine->cards[1].entry->used_bytes.store_seq_cst(2000);
    });
  }
  for (Child& child : children) ASSERT_TRUE(child.wait_ready());
  const auto full = listed("many");
  ASSERT_TRUE(full.has_value());
  std::set<std::int32_t> pids;
  for (const auto& process : full->processes) pids.insert(process.pid);
  EXPECT_EQ(pids.size(), 65U);
  EXPECT_EQ(full->cards[0].announced, Bytes(64 * 1000));
  EXPECT_EQ(full->cards[1].announced, Bytes(64 * 2000));
  for (Child& child : children) child.kill();
  EXPECT_TRUE(eventually([&] {
    const auto now = listed("many");
    return now && now->processes.size() == 1 && now->cards[0].announced == Bytes();
  }));
}

TEST_F(ArbiterTest, AProgramThatCallsExecLosesItsAccountEntry) {
  put(order("exec"));
  RawClient watcher = connect("exec");
  Child child([&] {
    auto mine = hello(runtime_, "exec");
    if (!mine) _exit(1);
    mine->card().entry->used_bytes.store_seq_cst(4096);
    execl("/bin/sleep", "sleep", "60", nullptr);
  });
  ASSERT_TRUE(eventually([&] { return watcher.card().account->entries[1].used_bytes.load_seq_cst() == 4096; }));
  EXPECT_TRUE(eventually([&] { return listed("exec")->cards[0].announced == Bytes(); }, 8'000 * kMs));
  EXPECT_EQ(listed("exec")->processes.size(), 1U);
}

/// Another program in the same process: it sends a hello, maps the page as `kind` requires, reports the reply through
/// descriptor 99, and stays.
void exec_client(const std::string& socket, abi::LibraryKind kind) {
  constexpr char kProgram[] =
      "import array, mmap, os, socket, struct, sys, time\n"
      "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
      "s.connect(sys.argv[1])\n"
      "kind, abi = int(sys.argv[2]), int(sys.argv[3])\n"
      "s.send(struct.pack('IHHII', 0x48564143, abi, abi, kind, 0))\n"
      "_, control, _, _ = s.recvmsg(64, 1024)\n"
      "fds = array.array('i'); fds.frombytes(control[0][2])\n"
      "access = mmap.PROT_READ if kind == 2 else mmap.PROT_READ | mmap.PROT_WRITE\n"
      "m = mmap.mmap(fds[1], 4096, mmap.MAP_SHARED, access)\n"
      "os.write(99, b'r')\n"
      "time.sleep(60)\n";
  execl("/usr/bin/python3", "python3", "-c", kProgram, socket.c_str(),
        std::to_string(static_cast<unsigned>(kind)).c_str(), std::to_string(abi::kPageAbi).c_str(), nullptr);
}

// The previous program's memory is freed at the first hello of the next program, from either library.
TEST_F(ArbiterTest, TheProgramAfterExecFindsThePreviousMemoryFree) {
  for (const auto kind : {abi::LibraryKind::kCuda, abi::LibraryKind::kNvml}) {
    const std::string id = kind == abi::LibraryKind::kCuda ? "exec-cuda" : "exec-nvml";
    put(order(id));
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      auto mine = hello(runtime_, id);
      if (!mine) _exit(1);
      mine->card().entry->used_bytes.store_seq_cst(4096);
      dup2(ready[1], 99);
      exec_client(runtime_ + "/slices/" + id + "/s", kind);
      _exit(1);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "no answer to the second hello";
    const auto slice = listed(id);
    ASSERT_TRUE(slice.has_value());
    EXPECT_EQ(slice->cards[0].announced, Bytes()) << id;
    EXPECT_EQ(slice->processes.size(), kind == abi::LibraryKind::kCuda ? 1U : 0U);
    close(ready[0]);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

// A process may send any number of hellos and map and unmap anything. What it announced before counts until it exits or
// calls exec.
TEST_F(ArbiterTest, NeitherAHelloNorAnUnmapFreesAnAccountEntry) {
  put(order("twice"));
  RawClient watcher = connect("twice");
  Child child([&] {
    munmap(watcher.card().account, abi::kAccountPageBytes);
    auto real = hello(runtime_, "twice");
    auto by_hand = hello(runtime_, "twice");
    if (!real || !by_hand || by_hand->welcome.entry == real->welcome.entry) _exit(1);
    real->card().entry->used_bytes.store_seq_cst(4096);
    munmap(by_hand->card().account, abi::kAccountPageBytes);
    munmap(real->card().account, abi::kAccountPageBytes);
  });
  ASSERT_TRUE(child.wait_ready());
  ASSERT_EQ(listed("twice")->cards[0].announced, Bytes(4096));
  EXPECT_FALSE(eventually([&] { return listed("twice")->cards[0].announced == Bytes(); }, 3'000 * kMs));
  child.kill();
  EXPECT_TRUE(eventually([&] { return listed("twice")->cards[0].announced == Bytes(); }));
}

/// Like a process with the library: sends a hello, maps its lifeline, announces 4096 bytes, and forks a child that
/// stays. Writes the child's PID to `heir_of`.
void have_an_heir(const std::string& runtime, const std::string& id, int heir_of) {
  auto mine = hello(runtime, id);
  if (!mine || mine->welcome.entry != 1 || mine->lifeline == nullptr) _exit(1);
  mine->card().entry->used_bytes.store_seq_cst(4096);
  const pid_t heir = fork();
  if (heir == 0) {
    for (;;) pause();
  }
  if (write(heir_of, &heir, sizeof heir) != sizeof heir) _exit(3);
}

// A forked child has its parent's descriptors, and the driver's memory is freed with the last of them. The parent dies,
// or becomes another program.
TEST_F(ArbiterTest, AnEndedProgramsAccountEntryCountsWhileAChildHasItsDescriptors) {
  for (const bool by_exec : {false, true}) {
    const std::string id = by_exec ? "heirs-exec" : "heirs";
    put(order(id));
    RawClient watcher = connect(id);
    abi::AccountEntry& entry = watcher.card().account->entries[1];
    int heir_of[2];
    ASSERT_EQ(pipe2(heir_of, O_CLOEXEC), 0);
    Child child([&] {
      have_an_heir(runtime_, id, heir_of[1]);
      if (by_exec) execl("/bin/sleep", "sleep", "60", nullptr);
    });
    pid_t heir = -1;
    ASSERT_EQ(read(heir_of[0], &heir, sizeof heir), static_cast<ssize_t>(sizeof heir));
    if (!by_exec) {
      ASSERT_TRUE(child.wait_ready());
      child.kill();
    }
    EXPECT_FALSE(eventually([&] { return entry.used_bytes.load_seq_cst() == 0; }, 1'000 * kMs)) << id;
    EXPECT_EQ(listed(id)->cards[0].announced, Bytes(4096)) << id;
    EXPECT_EQ(listed(id)->processes.size(), by_exec ? 2U : 1U) << "a dead process is not in the slice: " << id;
    ::kill(heir, SIGKILL);
    EXPECT_TRUE(eventually([&] { return entry.used_bytes.load_seq_cst() == 0; })) << id;
    close(heir_of[0]);
    close(heir_of[1]);
  }
}

TEST_F(ArbiterTest, WithoutAFreeDescriptorARunningProcessKeepsItsAccountEntry) {
  put(order("short"));
  RawClient client = connect("short");
  client.card().entry->used_bytes.store_seq_cst(4096);
  usleep(2'200'000);  // real time: no process loses its account entry in the first two seconds
  rlimit before{};
  ASSERT_EQ(prlimit(arbiter_->pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit no_more{5, before.rlim_max};  // than it has open; it polls four
  ASSERT_EQ(prlimit(arbiter_->pid(), RLIMIT_NOFILE, &no_more, nullptr), 0);
  usleep(1'000'000);  // real time: several rounds of the arbiter; each fails to check the process
  ASSERT_EQ(prlimit(arbiter_->pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  const auto slice = listed("short");
  ASSERT_TRUE(slice.has_value());
  EXPECT_EQ(slice->cards[0].announced, Bytes(4096));
  EXPECT_EQ(slice->processes.size(), 1U);
}

TEST_F(ArbiterTest, ASliceIsRefusedWhenTheFileSystemIsFull) {
  const std::string pages = runtime_ + "/arbiter/pages";
  arbiter_->kill();
  ASSERT_EQ(umount2(pages.c_str(), MNT_DETACH), 0);
  ASSERT_EQ(mount("small", pages.c_str(), "tmpfs", 0, "mode=0700,size=8k"), 0) << std::strerror(errno);
  arbiter_->start();
  ASSERT_TRUE(eventually([&] { return agent_->list().has_value(); }));
  put(order("one"));
  put(order("two"));
  const auto third = agent_->put(order("three"));
  ASSERT_FALSE(third) << "there is memory for two pages only";
  EXPECT_EQ(third.error().code, Code::kResourceExhausted) << third.error().what;
  EXPECT_TRUE(arbiter_->alive());
  ASSERT_TRUE(agent_->drop("one"));
  put(order("three"));
  EXPECT_EQ(connect("three").welcome.status, abi::WelcomeStatus::kOk);
}

TEST_F(ArbiterTest, LimitsChangeInPlaceAndADeletedSliceIsRevoked) {
  put(order("edit"));
  RawClient client = connect("edit");
  PageOrder other = order("edit", 20);
  other.slices[0].memory = Bytes::gib(1);
  put(other);
  EXPECT_EQ(client.card().grant->memory_limit.load_relaxed(), 1ULL << 30);
  EXPECT_EQ(client.card().grant->compute_limit.load_relaxed(), 20U);
  EXPECT_TRUE(eventually([&] { return client.card().grant->rate_ppm.load_relaxed() == 200'000; }));
  other.slices[0].ceiling = CoreShare(60);
  put(other);
  EXPECT_EQ(client.card().grant->compute_ceiling.load_relaxed(), 60U);
  other.slices[0].ceiling = CoreShare(19);
  EXPECT_FALSE(agent_->put(other)) << "below the guarantee";
  EXPECT_EQ(client.card().grant->compute_ceiling.load_relaxed(), 60U);
  other.slices[0].ceiling = CoreShare::whole();
  put(other);
  ASSERT_TRUE(agent_->set_overhead("edit", 0, Bytes::mib(7)));
  EXPECT_EQ(client.card().grant->overhead_bytes.load_relaxed(), 7ULL << 20);
  EXPECT_FALSE(agent_->set_overhead("edit", 1, Bytes()));
  EXPECT_FALSE(agent_->set_overhead("none", 0, Bytes()));
  other.slices[0].card = CardId("GPU-other");
  EXPECT_FALSE(agent_->put(other)) << "the cards of a slice never change";

  const std::uint32_t word = client.card().grant->lease.load_acquire();
  ASSERT_TRUE(agent_->drop("edit"));
  EXPECT_EQ(client.card().grant->revoked.load_relaxed(), 1U);
  EXPECT_NE(client.card().grant->lease.load_acquire(), word) << "a process that waits for a grant must be notified";
  EXPECT_FALSE(connect_slice(runtime_, "edit").has_value());
  EXPECT_FALSE(std::filesystem::exists(runtime_ + "/slices/edit"));
  EXPECT_TRUE(agent_->drop("edit")) << "dropping nothing is not an error";
  EXPECT_FALSE(listed("edit").has_value());

  put(order("edit"));
  RawClient again = connect("edit");
  EXPECT_EQ(again.card().grant->revoked.load_relaxed(), 0U);
  EXPECT_NE(again.card().grant->page_generation, client.card().grant->page_generation);
  EXPECT_EQ(client.card().grant->revoked.load_relaxed(), 1U) << "the processes of the deleted slice stay revoked";
}

TEST_F(ArbiterTest, AListIsCompleteRegardlessOfItsLength) {
  for (int i = 0; i < 100; ++i) put(order("slice-" + std::to_string(i), 1));
  const auto all = agent_->list();
  ASSERT_TRUE(all) << all.error().what;
  EXPECT_EQ(all->size(), 100U);
}

TEST_F(ArbiterTest, AListCountsWaitsAndWhatTheProcessesCounted) {
  put(order("a"));
  put(order("b"));
  RawClient a = connect("a");
  RawClient b = connect("b");
  a.card().account->refused_requests.fetch_add(3);
  a.card().account->refused_bytes.fetch_add(4096);
  {
    Works left(a.card());
    Works right(b.card());
    usleep(300'000);
  }
  const auto listed_a = listed("a");
  ASSERT_TRUE(listed_a && listed_a->cards.size() == 1);
  ASSERT_TRUE(listed_a->cards[0].counters);
  const SliceCounters& counters = *listed_a->cards[0].counters;
  EXPECT_EQ(counters.refused_requests, 3U);
  EXPECT_EQ(counters.refused_bytes, 4096U);
  std::uint64_t waits = 0;
  for (const std::uint64_t count : counters.waits) waits += count;
  EXPECT_GE(waits, 5U) << "leases of 12 ms, in turns with the other slice";
  EXPECT_GE(counters.waited_ns, 60 * kMs) << "about half of the time";
  EXPECT_LE(counters.waited_ns, 1'000 * kMs);
  EXPECT_EQ(counters.capped_ns, 0U) << "only a fixed slice is capped";
}

TEST_F(ArbiterTest, AnAgentOfAnEarlierReleaseGetsAListWithoutCounters) {
  put(order("a"));
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/arbiter/control", runtime_.c_str());
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  abi::ControlRequest request{};
  request.magic = abi::kControlMagic;
  request.abi = abi::kControlAbi;
  request.op = abi::ControlOp::kList;
  ASSERT_EQ(send(socket.get(), &request, sizeof request, 0), static_cast<ssize_t>(sizeof request));
  abi::ControlList reply{};
  EXPECT_EQ(recv(socket.get(), &reply, sizeof reply, 0), static_cast<ssize_t>(sizeof reply.reply));
  EXPECT_STREQ(reply.reply.id, "a");
}

TEST_F(ArbiterTest, ACallerThatIsNotRootIsRefused) {
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    arbiter::ArbiterClient unprivileged(runtime_ + "/arbiter/control");
    _exit(unprivileged.list() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace carve::arbiter_test
