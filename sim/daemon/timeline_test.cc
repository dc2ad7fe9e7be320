#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>

#include "sim/daemon/kernel.h"
#include "sim/daemon/reports.h"

// The card's schedule in exact virtual time: commands with time stamps in, the account out, without a clock or a sleep.
namespace carve::sim {
namespace {

constexpr std::uint64_t kBoot = 1'000'000'000'000;
constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMs = 1'000'000;

class Bench {
 public:
  explicit Bench(const std::string& profile = "h200x2") {
    std::string error;
    EXPECT_TRUE(parse_machine(profile, "test", &machine_, &error)) << error;
    kernel_ = std::make_unique<Kernel>(machine_, kBoot);
  }
  ~Bench() {
    while (!kernel_->clients().empty())
      kernel_->remove_client(kernel_->clients().begin()->second.get(), kBoot);
  }

  Client* client(const std::string& cgroup = "/") {
    auto fresh = std::make_unique<Client>();
    fresh->pid = next_++;
    fresh->socket = fresh->pid;
    fresh->kind = ClientKind::kCuda;
    fresh->cgroup = cgroup;
    void* at = mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fresh->channel = static_cast<Channel*>(at);
    return kernel_->add_client(std::move(fresh), kBoot);
  }
  Stream* stream(Client* owner, std::uint32_t card = 0) {
    std::uint64_t index = 0;
    EXPECT_EQ(kernel_->open_stream(*owner, card, &index), Status::kOk);
    return owner->streams.at(static_cast<std::uint32_t>(index)).get();
  }
  /// Appends as a client does; `at` in ns after boot. Returns the stream's command count after it.
  static std::uint64_t put(Stream* s, std::uint64_t at, CommandKind kind, std::uint64_t duration,
                           std::uint32_t argument = 0, std::uint64_t target = 1) {
    const std::uint64_t n = s->cell->submitted.load();
    s->ring[n % kRingSlots] = {kBoot + at, duration, kind, argument, target};
    s->cell->submitted.store(n + 1);
    return n + 1;
  }
  static std::uint64_t kernel_of(Stream* s, std::uint64_t at, std::uint64_t duration) {
    return put(s, at, CommandKind::kCompute, duration);
  }
  void advance(std::uint64_t to) { kernel_->advance(kBoot + to); }
  Kernel& kernel() { return *kernel_; }
  static const Account& account(const Client* c, std::uint32_t card = 0) {
    return *c->accounts[card];
  }
  static std::uint64_t done_at(const Stream* s) { return s->cell->done_ns.load() - kBoot; }

 private:
  Machine machine_;
  std::unique_ptr<Kernel> kernel_;
  std::int32_t next_ = 100;
};

TEST(Timeline, ALoneProcessGetsEveryNanosecond) {
  Bench b;
  Client* c = b.client();
  Stream* s = b.stream(c);
  for (int i = 0; i < 10; ++i) b.kernel_of(s, 5 * kUs, 500 * kUs);
  b.advance(20 * kMs);
  EXPECT_EQ(b.account(c).gpu_ns, 5 * kMs);
  EXPECT_EQ(b.account(c).launches, 10U);
  EXPECT_EQ(b.done_at(s), 5 * kUs + 5 * kMs);
  EXPECT_EQ(b.kernel().engine(0).switches, 0U);
  EXPECT_EQ(b.kernel().engine(1).gpu_ns, 0U);
}

TEST(Timeline, AKernelBeginsWhenItWasSubmittedNotWhenItWasSeen) {
  Bench b;
  Stream* s = b.stream(b.client());
  b.advance(1 * kMs);
  b.kernel_of(s, 3 * kMs, 100 * kUs);
  b.kernel_of(s, 7 * kMs, 100 * kUs);
  b.advance(50 * kMs);
  EXPECT_EQ(b.done_at(s), 7 * kMs + 100 * kUs);
}

TEST(Timeline, TwoProcessesAlternateInTimeSlicesAndPayForSwitches) {
  Bench b;
  Client* one = b.client();
  Client* two = b.client();
  Stream* s1 = b.stream(one);
  Stream* s2 = b.stream(two);
  for (int i = 0; i < 1000; ++i) {
    b.kernel_of(s1, 0, 5 * kMs);   // longer than a time slice: preempted and resumed
    b.kernel_of(s2, 0, 25 * kUs);  // many in a time slice
  }
  b.advance(20 * kMs);
  const Engine& card = b.kernel().engine(0);
  EXPECT_EQ(b.account(one).gpu_ns + b.account(two).gpu_ns + card.switch_ns, 20 * kMs);
  // 1,024 µs each in turn and 100 µs for the switch: 1.124 ms per turn.
  EXPECT_NEAR(static_cast<double>(b.account(one).gpu_ns), 20e6 * 1024 / 1124 / 2, 1.1e6);
  EXPECT_NEAR(static_cast<double>(b.account(two).gpu_ns), 20e6 * 1024 / 1124 / 2, 1.1e6);
  EXPECT_EQ(card.switches, 20 * kMs / (1124 * kUs));
}

TEST(Timeline, AProcessWithoutWorkYieldsTheCardImmediately) {
  Bench b;
  Stream* s1 = b.stream(b.client());
  Stream* s2 = b.stream(b.client());
  b.kernel_of(s1, 0, 200 * kUs);
  b.kernel_of(s2, 0, 200 * kUs);
  b.advance(10 * kMs);
  EXPECT_EQ(b.done_at(s1), 200 * kUs);
  EXPECT_EQ(b.done_at(s2), 500 * kUs);  // 200 + 100 to switch + 200
}

TEST(Timeline, CopiesRunConcurrentlyWithKernels) {
  Bench b;
  Client* c = b.client();
  Stream* compute = b.stream(c);
  Stream* copy = b.stream(c);
  b.kernel_of(compute, 0, 1000 * kUs);
  b.put(copy, 0, CommandKind::kCopy, 700 * kUs);
  b.advance(10 * kMs);
  EXPECT_EQ(b.done_at(compute), 1000 * kUs);
  EXPECT_EQ(b.done_at(copy), 700 * kUs);
  EXPECT_EQ(b.account(c).copy_ns, 700 * kUs);
  EXPECT_EQ(b.account(c).gpu_ns, 1000 * kUs);
}

TEST(Timeline, WaitsHoldAcrossStreamsAndCardsAndMarksRecordTheTime) {
  Bench b;
  Client* c = b.client();
  Stream* first = b.stream(c, 0);
  Stream* second = b.stream(c, 1);
  const std::uint64_t after = b.kernel_of(first, 0, 300 * kUs);
  b.put(second, 0, CommandKind::kWait, 0, first->index, after);
  b.put(second, 0, CommandKind::kMark, 0, 7);
  b.kernel_of(second, 0, 50 * kUs);
  b.put(second, 0, CommandKind::kMark, 0, 8);
  b.advance(5 * kMs);
  EXPECT_EQ(c->channel->time_slots[7].load() - kBoot, 300 * kUs);
  EXPECT_EQ(c->channel->time_slots[8].load() - kBoot, 350 * kUs);
}

TEST(Timeline, AHostFunctionHoldsItsStreamUntilTheClientReportsItDone) {
  Bench b;
  Stream* s = b.stream(b.client());
  b.kernel_of(s, 0, 100 * kUs);
  b.put(s, 0, CommandKind::kHost, 0);
  b.kernel_of(s, 0, 100 * kUs);
  b.advance(2 * kMs);
  EXPECT_EQ(s->head, 1U);
  s->cell->host_done.store(2);
  b.advance(3 * kMs);  // processed now: the kernel behind it begins now, not in the past
  b.advance(4 * kMs);
  EXPECT_EQ(b.done_at(s), 3 * kMs + 100 * kUs);
}

TEST(Timeline, ADeathDuringAKernelFreesTheCardAndKeepsTheAccount) {
  Bench b;
  Client* one = b.client();
  Client* two = b.client();
  Stream* s1 = b.stream(one);
  Stream* s2 = b.stream(two);
  b.kernel_of(s1, 0, 900 * kUs);
  b.kernel_of(s2, 0, 100 * kUs);
  b.advance(300 * kUs);
  const std::shared_ptr<Account> kept = one->accounts[0];
  b.kernel().remove_client(one, kBoot + 300 * kUs);
  b.advance(5 * kMs);
  EXPECT_EQ(kept->gpu_ns, 300 * kUs);
  EXPECT_EQ(b.done_at(s2), 400 * kUs);
}

TEST(Timeline, InvalidCommandsNeitherHangNorCrashTheDaemon) {
  Bench b;
  Client* c = b.client();
  Stream* s = b.stream(c);
  b.put(s, 0, static_cast<CommandKind>(77), 1);
  b.put(s, ~0ULL - kBoot, CommandKind::kMark, 0, 4'000'000'000U);
  b.put(s, 0, CommandKind::kWait, 0, 4'000'000'000U, ~0ULL);
  b.put(s, 0, CommandKind::kCompute, 0, 0, 1);
  Stream* endless = b.stream(c);
  b.put(endless, 0, CommandKind::kCompute, ~0ULL);
  b.put(b.stream(c), 0, CommandKind::kCopy, ~0ULL - kBoot);
  b.advance(1 * kMs);
  s->cell->submitted.store(1'000'000);  // a tail beyond the ring
  b.advance(2 * kMs);
  s->cell->submitted.store(0);  // a tail that decreases
  b.advance(3 * kMs);
  SUCCEED();
}

struct Step {
  std::uint64_t at;
  CommandKind kind;
  std::uint64_t duration;
  std::uint32_t slot;
};

std::vector<Step> random_program(std::mt19937& random) {
  std::vector<Step> out;
  std::uint64_t at = 0;
  for (int i = 0; i < 60; ++i) {
    at += random() % (400 * kUs);
    const auto kind = random() % 10;
    if (kind < 7) {
      out.push_back({at, CommandKind::kCompute, random() % (1500 * kUs), 0});
    } else if (kind < 9) {
      out.push_back({at, CommandKind::kCopy, random() % (300 * kUs), 0});
    } else {
      out.push_back({at, CommandKind::kMark, 0, static_cast<std::uint32_t>(random() % 100)});
    }
  }
  return out;
}

/// A random program for three processes on two cards, advanced every `step` ns. Returns when each stream ended, and
/// what each process got.
std::vector<std::uint64_t> play_random(std::uint32_t seed, std::uint64_t step) {
  Bench b;
  std::mt19937 random(seed);
  std::vector<Client*> clients;
  std::vector<Stream*> streams;
  std::vector<std::vector<Step>> programs;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(b.client());
    for (std::uint32_t card = 0; card < 2; ++card) {
      streams.push_back(b.stream(clients.back(), card));
      programs.push_back(random_program(random));
    }
  }
  std::vector<std::size_t> next(streams.size(), 0);
  for (std::uint64_t t = step; t < 400 * kMs + step; t += step) {
    for (std::size_t i = 0; i < streams.size(); ++i)
      for (; next[i] < programs[i].size() && programs[i][next[i]].at <= t; ++next[i]) {
        const Step& s = programs[i][next[i]];
        b.put(streams[i], s.at, s.kind, s.duration, s.slot);
      }
    b.advance(t);
  }
  std::vector<std::uint64_t> out;
  for (const Stream* s : streams) out.push_back(b.done_at(s));
  for (const Client* c : clients)
    for (std::uint32_t card = 0; card < 2; ++card) {
      out.push_back(b.account(c, card).gpu_ns);
      out.push_back(b.account(c, card).copy_ns);
    }
  return out;
}

TEST(Timeline, TheResultDoesNotDependOnTheStepSize) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const auto fine = play_random(seed, 37 * kUs);
    EXPECT_EQ(fine, play_random(seed, 5 * kMs)) << "seed " << seed;
    EXPECT_EQ(fine, play_random(seed, 400 * kMs)) << "seed " << seed;
  }
}

TEST(Timeline, WindowsSumToTheDeliveredTime) {
  Bench b;
  Client* c = b.client();
  Stream* s = b.stream(c);
  for (int i = 0; i < 500; ++i) b.kernel_of(s, static_cast<std::uint64_t>(i) * kMs, 730 * kUs);
  b.advance(600 * kMs);
  const History& history = b.account(c).history;
  EXPECT_EQ(history.sum(kBoot, kBoot + 600 * kMs), 500 * 730 * kUs);
  EXPECT_EQ(history.sum(kBoot, kBoot + 100 * kMs), 100 * 730 * kUs);
}

TEST(Memory, GrantsTheLastGranuleOfTheCardAndNoMore) {
  Bench b("t4x1");
  Client* c = b.client();
  const Model& model = *b.kernel().machine().model;
  const std::uint64_t capacity = model.memory_bytes - model.reserved_bytes;
  std::uint64_t handle = 0, second = 0;
  ASSERT_EQ(b.kernel().allocate(*c, 0, 0, Charge::kContext, &handle), Status::kOk);
  EXPECT_EQ(b.account(c).context_bytes, model.context_bytes);
  const std::uint64_t rest = (capacity - model.context_bytes) / kGranule * kGranule;
  EXPECT_EQ(b.kernel().allocate(*c, 0, rest + kGranule, Charge::kExplicit, &second), Status::kNoMemory);
  ASSERT_EQ(b.kernel().allocate(*c, 0, rest, Charge::kExplicit, &second), Status::kOk);
  EXPECT_EQ(b.kernel().allocate(*c, 0, kGranule, Charge::kExplicit, &handle), Status::kNoMemory);
  EXPECT_EQ(b.account(c).explicit_bytes, rest);
  EXPECT_EQ(b.account(c).refused, 2U);
  ASSERT_EQ(b.kernel().release(*c, second, false), Status::kOk);
  EXPECT_EQ(b.kernel().release(*c, second, false), Status::kNoSuchHandle);
  EXPECT_EQ(b.account(c).explicit_bytes, 0U);
  EXPECT_EQ(b.account(c).explicit_high, rest);
}

TEST(Memory, SmallAllocationsShareGranulesAndAreCountedExactly) {
  Bench b;
  Client* c = b.client();
  std::vector<std::uint64_t> handles(1000);
  for (auto& handle : handles)
    ASSERT_EQ(b.kernel().allocate(*c, 0, 1000, Charge::kExplicit, &handle), Status::kOk);
  EXPECT_EQ(b.account(c).explicit_bytes, 1000U * 1000U);
  EXPECT_EQ(b.account(c).physical_bytes(), kGranule);
  EXPECT_EQ(b.kernel().engine(0).used_bytes, kGranule);
  for (auto handle : handles) ASSERT_EQ(b.kernel().release(*c, handle, false), Status::kOk);
  EXPECT_EQ(b.kernel().engine(0).used_bytes, 0U);
}

TEST(Memory, ModuleMemoryIsNotExplicitButIsUsedOnTheCard) {
  Bench b("t4x1");
  Client* c = b.client();
  std::uint64_t small = 0, large = 0, handle = 0;
  ASSERT_EQ(b.kernel().allocate(*c, 0, 64, Charge::kModule, &small), Status::kOk);
  ASSERT_EQ(b.kernel().allocate(*c, 0, 3 * kGranule, Charge::kModule, &large), Status::kOk);
  EXPECT_EQ(b.account(c).module_bytes, 3 * kGranule + 512);
  EXPECT_EQ(b.account(c).physical_bytes(), 4 * kGranule);
  EXPECT_EQ(b.account(c).explicit_high, 0U);
  EXPECT_EQ(b.kernel().engine(0).used_bytes, 4 * kGranule);
  const Model& model = *b.kernel().machine().model;
  EXPECT_EQ(b.kernel().allocate(*c, 0, model.memory_bytes - model.reserved_bytes - kGranule, Charge::kModule, &handle),
            Status::kNoMemory);
  EXPECT_EQ(b.kernel().release(*c, large, true), Status::kNoSuchHandle);  // no context
  ASSERT_EQ(b.kernel().release(*c, large, false), Status::kOk);
  ASSERT_EQ(b.kernel().release(*c, small, false), Status::kOk);
  EXPECT_EQ(b.kernel().engine(0).used_bytes, 0U);
}

TEST(Memory, AGroupsHighestSumIsThatOfOneInstant) {
  Bench b;
  Client* one = b.client("/slice");
  Client* two = b.client("/slice");
  Client* other = b.client("/elsewhere");
  std::uint64_t h1 = 0, h2 = 0, h3 = 0;
  ASSERT_EQ(b.kernel().allocate(*one, 0, 10 * kGranule, Charge::kExplicit, &h1), Status::kOk);
  ASSERT_EQ(b.kernel().release(*one, h1, false), Status::kOk);
  ASSERT_EQ(b.kernel().allocate(*two, 0, 7 * kGranule, Charge::kExplicit, &h2), Status::kOk);
  ASSERT_EQ(b.kernel().allocate(*other, 0, 50 * kGranule, Charge::kExplicit, &h3), Status::kOk);
  ASSERT_EQ(b.kernel().allocate(*one, 0, 4 * kGranule, Charge::kExplicit, &h1), Status::kOk);
  const Group& group = *one->accounts[0]->group;
  EXPECT_EQ(&group, two->accounts[0]->group);
  EXPECT_EQ(group.explicit_high, 11 * kGranule);
  EXPECT_EQ(group.processes, 2U);
  b.kernel().remove_client(one, kBoot + 1);
  EXPECT_EQ(group.explicit_bytes, 7 * kGranule);
  EXPECT_EQ(group.processes, 1U);
}

TEST(Profiles, ABadProfileIsRefusedWithTheLegalNames) {
  Machine machine;
  for (const char* bad :
       {"", "x", "h200x0", "h200x17", "h200x", "h300x2", "H200x2", "h200x2 ", "h200x01", "t4-1"}) {
    std::string error;
    EXPECT_FALSE(parse_machine(bad, "i", &machine, &error)) << bad;
    EXPECT_NE(error.find("h200x2"), std::string::npos) << error;
  }
  std::string error;
  ASSERT_TRUE(parse_machine("a100x16", "i", &machine, &error));
  EXPECT_EQ(machine.count, 16U);
  EXPECT_NE(std::string(machine.cards[0].uuid), machine.cards[15].uuid);
  Machine again, elsewhere;
  ASSERT_TRUE(parse_machine("a100x16", "i", &again, &error));
  ASSERT_TRUE(parse_machine("a100x16", "j", &elsewhere, &error));
  EXPECT_STREQ(machine.cards[3].uuid, again.cards[3].uuid);
  EXPECT_STRNE(machine.cards[3].uuid, elsewhere.cards[3].uuid);
}

TEST(Reports, WindowsOfATimeThatHasNotComeAreNone) {
  Bench bench;
  bench.client();
  // So many windows that a loop over all of them would not end. Without sanitizers the compiler leaves such a loop out.
  constexpr std::uint64_t kNow = UINT64_MAX / 2;
  EXPECT_TRUE(window_records(bench.kernel(), 10, UINT64_MAX, kNow).empty());
  EXPECT_TRUE(window_records(bench.kernel(), 10, kNow, kNow).empty());
}

}  // namespace
}  // namespace carve::sim
