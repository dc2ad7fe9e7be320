#include "app/agent/journal_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace carve::agent {
namespace {

/// Keeps every transaction. Fails while `full`.
class RecordingJournal final : public NodeJournal {
 public:
  Result<void> append(const std::vector<JournalEvent>& events) override {
    if (on_append) on_append();
    if (full) return fail(Code::kResourceExhausted, "disk full");
    CARVE_TRY_VOID(apply_all(state_, events));
    transactions.push_back(events);
    return {};
  }
  [[nodiscard]] const JournalState& state() const override { return state_; }
  bool full = false;
  std::function<void()> on_append;
  std::vector<std::vector<JournalEvent>> transactions;

 private:
  JournalState state_;
};

JournalEvent note(const std::string& slice, const std::string& name = "name") {
  SliceNote note;
  note.name = name;
  return PutNote{slice, note};
}

Owner owner(const std::string& uid) { return {OwnerKind::kClaim, uid}; }

JournalEvent record(const std::string& uid) {
  Slice slice;
  slice.owner = owner(uid);
  slice.part = "gpu";
  slice.card = CardId("GPU-0");
  slice.memory = Bytes::gib(1);
  slice.compute = CoreShare(10);
  return PutRecord{*record_of(0, {slice})};
}

/// Blocks the first append until release().
struct SlowSync {
  explicit SlowSync(RecordingJournal& journal) {
    journal.on_append = [this, once = true]() mutable {
      if (!std::exchange(once, false)) return;
      running.set_value();
      released.wait();
    };
  }
  std::promise<void> running, release;
  std::shared_future<void> released = release.get_future().share();
};

TEST(JournalQueue, CallersThatArriveDuringASyncShareTheNextOne) {
  RecordingJournal journal;
  SlowSync sync(journal);
  JournalQueue queue(journal);
  std::vector<std::jthread> callers;
  callers.emplace_back([&] { EXPECT_TRUE(queue.append({note("first")})); });
  sync.running.get_future().wait();
  for (int i = 0; i < 20; ++i) {
    callers.emplace_back([&, i] { EXPECT_TRUE(queue.append({note("n" + std::to_string(i))})); });
  }
  while (queue.waiting() != 20) std::this_thread::yield();
  EXPECT_TRUE(journal.transactions.empty()) << "nothing is acknowledged before the first sync";
  sync.release.set_value();
  callers.clear();
  ASSERT_EQ(journal.transactions.size(), 2U);
  EXPECT_EQ(journal.transactions[1].size(), 20U);
  EXPECT_EQ(journal.state().notes.size(), 21U);
}

TEST(JournalQueue, RefusedEventsOfOneCallerDoNotHarmTheOthers) {
  RecordingJournal journal;
  SlowSync sync(journal);
  JournalQueue queue(journal);
  std::vector<std::jthread> callers;
  callers.emplace_back([&] { EXPECT_TRUE(queue.append({note("first")})); });
  sync.running.get_future().wait();
  callers.emplace_back([&] { EXPECT_TRUE(queue.append({note("good")})); });
  callers.emplace_back([&] { EXPECT_FALSE(queue.append({DropOwner{owner("unknown")}})); });
  callers.emplace_back([&] { EXPECT_FALSE(queue.append({note("bad", "\n")})); });
  while (queue.waiting() != 3) std::this_thread::yield();
  sync.release.set_value();
  callers.clear();
  EXPECT_EQ(journal.state().notes.size(), 2U);
  EXPECT_EQ(journal.state().notes.count("good"), 1U);
}

TEST(JournalQueue, AnOwedRemovalIsWrittenBeforeLaterEvents) {
  RecordingJournal journal;
  JournalQueue queue(journal);
  ASSERT_TRUE(queue.append({record("a"), note("a-id")}));
  queue.owe({DropOwner{owner("a")}, DropNote{"a-id"}});
  EXPECT_TRUE(queue.owes());
  ASSERT_TRUE(queue.append({record("b")}));
  EXPECT_FALSE(queue.owes());
  ASSERT_EQ(journal.transactions.size(), 2U);
  ASSERT_EQ(journal.transactions[1].size(), 3U);
  EXPECT_TRUE(std::holds_alternative<DropOwner>(journal.transactions[1][0]));
  EXPECT_TRUE(std::holds_alternative<PutRecord>(journal.transactions[1][2]));
}

/// A restarted agent must never read both the slice that ended and the slice that took its place.
TEST(JournalQueue, OnAFullDiskARemovalStaysOwedAndKeepsItsOrder) {
  RecordingJournal journal;
  JournalQueue queue(journal);
  ASSERT_TRUE(queue.append({record("a")}));
  queue.owe({DropOwner{owner("a")}});
  journal.full = true;
  EXPECT_FALSE(queue.settle());
  EXPECT_FALSE(queue.append({record("b")}));
  EXPECT_TRUE(queue.owes());
  EXPECT_EQ(journal.state().records.count(owner("a")), 1U);
  journal.full = false;
  ASSERT_TRUE(queue.append({record("b")}));
  EXPECT_EQ(journal.state().records.count(owner("a")), 0U);
  EXPECT_EQ(journal.state().records.count(owner("b")), 1U);
  EXPECT_FALSE(queue.owes());
}

TEST(JournalQueue, OwedEventsThatAreNoLongerValidAreLeftOut) {
  RecordingJournal journal;
  JournalQueue queue(journal);
  EXPECT_TRUE(queue.settle());
  ASSERT_TRUE(queue.append({record("a")}));
  queue.owe({DropOwner{owner("a")}, DropNote{"a-id"}, DropOwner{owner("a")}, DropOwner{owner("unknown")}});
  ASSERT_TRUE(queue.settle());
  ASSERT_EQ(journal.transactions.size(), 2U);
  EXPECT_EQ(journal.transactions[1].size(), 1U);
  EXPECT_FALSE(queue.owes());
}

TEST(JournalQueue, ManyRemovalsAreWrittenInSeveralTransactions) {
  RecordingJournal journal;
  JournalQueue queue(journal);
  std::vector<JournalEvent> owed;
  for (int i = 0; i < 600; ++i) {
    ASSERT_TRUE(queue.append({note("n" + std::to_string(i))}));
    owed.push_back(DropNote{"n" + std::to_string(i)});
  }
  queue.owe(owed);
  ASSERT_TRUE(queue.settle());
  EXPECT_TRUE(journal.state().notes.empty());
  const auto most = std::max_element(journal.transactions.begin(), journal.transactions.end(),
                                     [](const auto& a, const auto& b) { return a.size() < b.size(); });
  EXPECT_LE(most->size(), 256U) << "a line of the journal has a limit";
}

}  // namespace
}  // namespace carve::agent
