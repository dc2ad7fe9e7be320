#include "base/timed_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>

namespace carve {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kShort{1};

/// What a call waits for. The call may outlive the test.
struct Gate {
  std::counting_semaphore<> open{0};
  std::atomic<int> passed{0};
};

TEST(TimedCalls, MakesCallsInOneThread) {
  TimedCalls calls(ThreadName("test"), kLong);
  std::thread::id first;
  std::thread::id second;
  EXPECT_TRUE(calls.make(1, [&] { first = std::this_thread::get_id(); }));
  EXPECT_TRUE(calls.make(2, [&] { second = std::this_thread::get_id(); }));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(TimedCalls, ACallThatTakesTooLongIsLeftBehind) {
  const auto gate = std::make_shared<Gate>();
  TimedCalls calls(ThreadName("test"), kShort);
  const auto wait = [gate] {
    gate->open.acquire();
    ++gate->passed;
  };
  EXPECT_FALSE(calls.make(1, wait));
  const auto made = std::make_shared<std::atomic<bool>>(false);
  EXPECT_FALSE(calls.make(1, [made] { *made = true; })) << "about the same process";
  EXPECT_EQ(gate->passed, 0);
  gate->open.release();
  while (!calls.make(1, [] {})) std::this_thread::yield();  // on a busy machine it may be left behind, too
  EXPECT_EQ(gate->passed, 1);
  EXPECT_FALSE(*made) << "the refused call was not made";
}

TEST(TimedCalls, OtherProcessesDoNotWait) {
  const auto gate = std::make_shared<Gate>();
  TimedCalls calls(ThreadName("test"), kShort);
  EXPECT_FALSE(calls.make(1, [gate] { gate->open.acquire(); }));
  bool made = false;
  for (int i = 0; i < 10'000 && !made; ++i) made = calls.make(i + 2, [gate] { ++gate->passed; });
  EXPECT_TRUE(made);
  gate->open.release();
}

TEST(TimedCalls, OnlySoManyWaitAtTheSameTime) {
  const auto gate = std::make_shared<Gate>();
  {
    TimedCalls calls(ThreadName("test"), kShort);
    for (std::size_t i = 0; i < 2 * TimedCalls::kMostLeftBehind; ++i) {
      EXPECT_FALSE(calls.make(static_cast<std::int32_t>(i), [gate] {
        gate->open.acquire();
        ++gate->passed;
      }));
    }
  }
  gate->open.release(2 * TimedCalls::kMostLeftBehind);
  while (gate->passed < static_cast<int>(TimedCalls::kMostLeftBehind)) std::this_thread::yield();
  EXPECT_EQ(gate->passed, TimedCalls::kMostLeftBehind);
}

}  // namespace
}  // namespace carve
