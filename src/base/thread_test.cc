#include "base/thread.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace carve {
namespace {

std::string own_name() {
  std::array<char, 16> name{};
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  return name.data();
}

TEST(Thread, HasItsNameBeforeItsFunctionRuns) {
  std::string name;
  Thread thread("exactly-fifteen", [&] { name = own_name(); });
  thread.join();
  EXPECT_EQ(name, "exactly-fifteen");
  EXPECT_NE(own_name(), "exactly-fifteen");
}

TEST(Thread, ItsDestructorStopsAndJoinsIt) {
  std::atomic<bool> ended = false;
  {
    const Thread thread("waits", [&](const std::stop_token& stop) {
      Mutex mutex;
      StopCondition never;
      MutexLock lock(mutex);
      while (!stop.stop_requested()) never.wait(lock, stop);
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

TEST(Thread, AnAssignmentStopsAndJoinsThePreviousThread) {
  std::atomic<int> ended = 0;
  const auto until_stop = [&](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
    ++ended;
  };
  Thread thread("first", until_stop);
  thread = Thread("second", until_stop);
  EXPECT_EQ(ended, 1);
  thread = Thread();
  EXPECT_EQ(ended, 2);
  EXPECT_FALSE(thread.running());
}

TEST(Thread, JoinOfAThreadThatWasNotStartedOrIsJoinedDoesNothing) {
  Thread none;
  none.join();
  Thread thread("short", [] {});
  EXPECT_TRUE(thread.running());
  thread.join();
  thread.join();
  EXPECT_FALSE(thread.running());
}

TEST(Thread, RunsAFunctionThatCannotBeCopied) {
  auto value = std::make_unique<int>(7);
  std::atomic<int> seen = 0;
  std::vector<Thread> threads;
  threads.emplace_back("owner", [value = std::move(value), &seen] { seen = *value; });
  threads.clear();
  EXPECT_EQ(seen, 7);
}

TEST(Thread, AStopTokenTakenFromOutsideSeesTheStop) {
  Thread thread("idle", [](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  const std::stop_token token = thread.stop_token();
  EXPECT_FALSE(token.stop_requested());
  thread.request_stop();
  EXPECT_TRUE(token.stop_requested());
}

struct Box {
  Mutex mutex;
  Condition changed;
  StopCondition changed_or_stop;
  int value GUARDED_BY(mutex) = 0;

  void put(int to) EXCLUDES(mutex) {
    {
      const MutexLock lock(mutex);
      value = to;
    }
    changed.notify_all();
    changed_or_stop.notify_all();
  }
};

TEST(Condition, WaitsUntilAnotherThreadNotifies) {
  Box box;
  const Thread writer("writer", [&] { box.put(1); });
  MutexLock lock(box.mutex);
  while (box.value == 0) box.changed.wait(lock);
  EXPECT_EQ(box.value, 1);
}

TEST(Condition, ReportsThatItsTimeHasPassed) {
  Box box;
  MutexLock lock(box.mutex);
  std::cv_status status = std::cv_status::no_timeout;
  while (status == std::cv_status::no_timeout) status = box.changed.wait_for(lock, std::chrono::milliseconds(1));
  EXPECT_EQ(status, std::cv_status::timeout);
}

TEST(StopCondition, WaitsUntilAnotherThreadNotifies) {
  Box box;
  const std::stop_source none;
  const Thread writer("writer", [&] { box.put(1); });
  MutexLock lock(box.mutex);
  while (box.value == 0) box.changed_or_stop.wait(lock, none.get_token());
  EXPECT_EQ(box.value, 1);
}

// A stop between the caller's check and the wait must not be lost.
TEST(StopCondition, DoesNotWaitAfterAStop) {
  Box box;
  std::stop_source stopped;
  stopped.request_stop();
  MutexLock lock(box.mutex);
  box.changed_or_stop.wait(lock, stopped.get_token());
  box.changed_or_stop.wait_until(lock, stopped.get_token(), std::chrono::steady_clock::time_point::max());
  SUCCEED() << "both calls returned";
}

TEST(StopCondition, ReturnsAtTheGivenTime) {
  Box box;
  const std::stop_source none;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  MutexLock lock(box.mutex);
  while (std::chrono::steady_clock::now() < end) box.changed_or_stop.wait_until(lock, none.get_token(), end);
  EXPECT_GE(std::chrono::steady_clock::now(), end);
}

TEST(MutexLock, UnlockReleasesTheMutexBeforeTheEndOfTheBlock) {
  Mutex mutex;
  MutexLock lock(mutex);
  bool taken = false;
  const auto try_it = [&] {
    Thread other("other", [&] {
      if (!mutex.try_lock()) return;
      taken = true;
      mutex.unlock();
    });
  };
  try_it();
  EXPECT_FALSE(taken);
  lock.unlock();
  try_it();
  EXPECT_TRUE(taken);
  lock.lock();
}

}  // namespace
}  // namespace carve
