// Tests that slices of different owners change at the same time: no owner waits for another owner's steps.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "app/agent/agent.h"
#include "app/agent/testing/machine.h"
#include "base/mutex.h"

namespace carve::agent {
namespace {

using fakes::ask;
using fakes::Machine;

constexpr std::chrono::seconds kPatience{20};  // only a failure waits this long

Owner claim(int number) { return {OwnerKind::kClaim, "claim-" + std::to_string(number)}; }

PrepareRequest part(int number, int card, std::uint64_t gib = 1) {
  Slice slice;
  slice.owner = claim(number);
  slice.part = "gpu";
  slice.card = CardId("GPU-" + std::to_string(card));
  slice.memory = Bytes::gib(gib);
  slice.compute = CoreShare(1);
  return {*record_of(0, {slice}), slice.part, "", "default/pod/gpu"};
}

PrepareRequest whole_card(int number, int card) {
  auto request = part(number, card, 140);
  RecordPart& whole = request.record.parts[0];
  whole.cards[0].compute = CoreShare::whole();
  whole.whole = whole.exclusive = true;
  return request;
}

std::string id_of(const Prepared& prepared) { return prepared.device.substr(prepared.device.find('=') + 1); }

void add_cards(Machine& machine, int count) {
  for (int i = static_cast<int>(machine.gpu.listed.cards.size()); i < count; ++i) {
    Card card = machine.gpu.listed.cards.front();
    card.id = CardId("GPU-" + std::to_string(i));
    card.minor = i;
    machine.gpu.listed.cards.push_back(card);
    machine.gpu.listed.pci_bus_ids.push_back("0000:00:" + std::to_string(i));
  }
}

/// A step that blocks its first caller until the test releases it.
class Block {
 public:
  void here() {
    {
      const MutexLock lock(mutex_);
      if (used_) return;
      used_ = true;
    }
    reached_.set_value();
    released_.wait();
  }
  void wait_until_reached() { reached_.get_future().wait(); }
  void release() { release_.set_value(); }

 private:
  Mutex mutex_;
  bool used_ GUARDED_BY(mutex_) = false;
  std::promise<void> reached_, release_;
  std::shared_future<void> released_ = release_.get_future().share();
};

template <typename Call>
auto in_thread(Call call) {
  return std::async(std::launch::async, std::move(call));
}

template <typename T>
bool ready(const std::future<T>& future) {
  return future.wait_for(kPatience) == std::future_status::ready;
}

TEST(Owners, WhileTheArbiterIsStoppedOtherPreparesSucceed) {
  Machine machine;
  add_cards(machine, 30);
  auto agent = machine.start();
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(agent->prepare(part(i, 0)));
  ASSERT_TRUE(agent->prepare(whole_card(300, 29)));
  std::promise<void> release;
  machine.pages.on_call = [&, stopped = release.get_future().share()] { stopped.wait(); };
  auto slow = in_thread([&] { return agent->prepare(part(100, 0)); });
  auto watching = in_thread([&] { agent->watch(); });  // waits for the arbiter's list, without a lock or turn
  auto others = in_thread([&] {
    int done = 0;
    for (int i = 0; i < 25; ++i) {
      done += agent->prepare(part(i, 0)).has_value() ? 1 : 0;                  // repeated: the pages exist
      done += agent->prepare(whole_card(200 + i, 2 + i)).has_value() ? 1 : 0;  // a whole card has no pages
    }
    return done + (agent->unprepare(claim(300)) ? 1 : 0);
  });
  const bool in_time = ready(others);
  EXPECT_EQ(slow.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "its arbiter call still runs";
  release.set_value();
  EXPECT_TRUE(in_time) << "50 prepares waited for another owner's arbiter call";
  EXPECT_EQ(others.get(), 51);
  EXPECT_TRUE(slow.get());
  watching.get();
  EXPECT_EQ(agent->held().size(), 51U);
}

TEST(Owners, ASlowFileOfOneOwnerDelaysNoOtherOwner) {
  Machine machine;
  auto agent = machine.start();
  Block file;
  machine.devices.on_publish = [&](const std::string&) { file.here(); };
  auto slow = in_thread([&] { return agent->prepare(part(0, 0)); });
  file.wait_until_reached();
  auto others = in_thread([&] {
    int done = 0;
    for (int i = 1; i <= 50; ++i) done += agent->prepare(part(i, i % 2)).has_value() ? 1 : 0;
    for (int i = 1; i <= 50; ++i) done += agent->unprepare(claim(i)).has_value() ? 1 : 0;
    return done;
  });
  const bool in_time = ready(others);
  file.release();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(others.get(), 100);
  EXPECT_TRUE(slow.get());
  EXPECT_EQ(agent->held().size(), 1U);
}

/// The journal is one file, so a change that must be written waits for the running sync. A call that writes nothing
/// does not wait.
TEST(Owners, ASlowSyncDelaysOnlyChangesThatMustBeWritten) {
  Machine machine;
  auto agent = machine.start();
  for (int i = 1; i <= 50; ++i) ASSERT_TRUE(agent->prepare(part(i, 0)));
  Block sync;
  machine.journal.on_append = [&] { sync.here(); };
  auto slow = in_thread([&] { return agent->prepare(part(0, 0)); });
  sync.wait_until_reached();
  auto others = in_thread([&] {
    int done = 0;
    for (int i = 1; i <= 50; ++i) done += agent->prepare(part(i, 0)).has_value() ? 1 : 0;
    return done + (agent->unprepare(claim(300)) ? 1 : 0) + (agent->promise_device() ? 1 : 0);
  });
  const bool in_time = ready(others);
  sync.release();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(others.get(), 52);
  EXPECT_TRUE(slow.get());
}

TEST(Owners, AChangeInFlightHoldsItsCapacityInTheLedger) {
  Machine machine;
  auto agent = machine.start();
  Block arbiter;
  machine.pages.on_put = [&](const std::string&) { arbiter.here(); };
  auto slow = in_thread([&] { return agent->prepare(part(0, 0, 100)); });
  arbiter.wait_until_reached();
  EXPECT_TRUE(agent->held().empty()) << "it has not started yet";
  const auto refused = agent->prepare(part(1, 0, 100));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted) << refused.error().what;
  machine.pages.away = true;
  arbiter.release();
  EXPECT_FALSE(slow.get());
  machine.pages.away = false;
  EXPECT_TRUE(machine.journal.state().records.empty());
  EXPECT_TRUE(machine.journal.state().notes.empty());
  EXPECT_TRUE(agent->prepare(part(1, 0, 100))) << "the capacity was freed";
}

TEST(Owners, AnUnprepareWaitsForThePrepareOfTheSameOwner) {
  Machine machine;
  auto agent = machine.start();
  Block arbiter;
  machine.pages.on_put = [&](const std::string&) { arbiter.here(); };
  auto prepared = in_thread([&] { return agent->prepare(part(0, 0)); });
  arbiter.wait_until_reached();
  auto ended = in_thread([&] { return agent->unprepare(claim(0)); });
  while (agent->waiting_for(claim(0)) == 0) std::this_thread::yield();
  arbiter.release();
  EXPECT_TRUE(prepared.get());
  EXPECT_TRUE(ended.get());
  EXPECT_TRUE(agent->held().empty());
  EXPECT_TRUE(machine.pages.orders.empty());
  EXPECT_TRUE(machine.devices.published.empty());
  EXPECT_TRUE(machine.journal.state().records.empty());
}

TEST(Owners, PagesOfAStartingSliceAreNotRemoved) {
  Machine machine;
  auto agent = machine.start();
  Block file;
  machine.devices.on_publish = [&](const std::string&) { file.here(); };
  auto slow = in_thread([&] { return agent->prepare(part(0, 0)); });
  file.wait_until_reached();
  EXPECT_EQ(machine.pages.orders.size(), 1U);
  agent->watch();
  EXPECT_EQ(machine.pages.orders.size(), 1U);
  file.release();
  const auto prepared = slow.get();
  ASSERT_TRUE(prepared);
  EXPECT_EQ(machine.pages.orders.count(id_of(*prepared)), 1U);
}

TEST(Owners, ASliceThatStartsCountsAgainstTheLimitOfItsUser) {
  Machine machine;
  AccessRule rule;
  rule.uid = 1000;
  rule.text = "user:1000";
  rule.max_slices = 1;
  auto agent = machine.start({rule});
  Block arbiter;
  machine.pages.on_put = [&](const std::string&) { arbiter.here(); };
  const Caller user{77, 1000, {1000}};
  auto slow = in_thread([&] { return agent->allocate(user, ask(4, 10), {}); });
  arbiter.wait_until_reached();
  const auto second = agent->allocate(user, ask(4, 10), {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kPermissionDenied) << second.error().what;
  arbiter.release();
  EXPECT_TRUE(slow.get());
}

/// A journal that contains both the ended slice and the slice that took its capacity cannot be restored.
TEST(Owners, CapacityFreedOnAFullDiskIsNotJournaledTwice) {
  Machine machine;
  auto agent = machine.start();
  const auto first = agent->allocate(fakes::root(), ask(140, 100, 2), {});
  ASSERT_TRUE(first) << first.error().what;
  ASSERT_TRUE(agent->join(fakes::root(77), first->slice));
  machine.cgroups.groups[first->slice].clear();
  machine.journal.full = true;
  agent->reap();
  EXPECT_TRUE(agent->holdings().empty()) << "its cgroup shows that it has ended";
  EXPECT_EQ(machine.journal.state().records.size(), 1U);
  machine.journal.full = false;
  const auto second = agent->allocate(fakes::root(), ask(140, 100, 2), {});
  ASSERT_TRUE(second) << second.error().what;
  EXPECT_EQ(machine.journal.state().records.size(), 1U);
  fakes::leave_dead(std::move(agent));
  ASSERT_TRUE(machine.start()) << "the journal contradicts itself";
}

/// For the thread sanitizer: prepares, unprepares and all loops at the same time. Nothing remains at the end.
TEST(Owners, ManyOwnersStartAndEndWhileAllLoopsRun) {
  Machine machine;
  add_cards(machine, 4);
  auto agent = machine.start();
  std::atomic<int> failed = 0;
  {
    std::vector<std::jthread> loops;
    loops.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) agent->watch();
    });
    loops.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) agent->reap();
    });
    loops.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        agent->judge_cards({});
        static_cast<void>(agent->view({}));
        static_cast<void>(agent->holdings());
        static_cast<void>(agent->troubles());
        static_cast<void>(agent->cards());
      }
    });
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < 6; ++worker) {
      workers.emplace_back([&, worker] {
        for (int i = 0; i < 40; ++i) {
          const int number = (worker / 2) * 1000 + i;  // two workers for each owner
          if (!agent->prepare(part(number, number % 4))) ++failed;
          if (!agent->unprepare(claim(number))) ++failed;
        }
      });
    }
    workers.clear();
  }
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(agent->held().empty());
  agent->watch();
  EXPECT_TRUE(machine.pages.orders.empty());
  EXPECT_TRUE(machine.devices.published.empty());
  EXPECT_TRUE(machine.journal.state().records.empty());
  EXPECT_TRUE(machine.journal.state().notes.empty());
  const auto cards = agent->view({})->cards;
  for (const auto& card : cards) EXPECT_EQ(card.set_aside, Bytes());
}

}  // namespace
}  // namespace carve::agent
