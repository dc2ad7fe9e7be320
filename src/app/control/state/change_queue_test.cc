#include "app/control/state/change_queue.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/thread.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using Names = std::set<std::string>;

TEST(ChangeQueue, ReturnsEachNameOnce) {
  ChangeFeed pods, nodes;
  ChangeQueue queue({&pods, &nodes});
  EXPECT_TRUE(queue.take().empty());
  pods.pod("a");
  pods.pod("b");
  pods.pod("a");
  nodes.node("n1");
  const auto changes = queue.take();
  EXPECT_EQ(changes.pods, (Names{"a", "b"}));
  EXPECT_EQ(changes.nodes, Names{"n1"});
  EXPECT_FALSE(changes.all);
  EXPECT_TRUE(queue.take().empty());
  nodes.all();
  EXPECT_TRUE(queue.take().all);
}

TEST(ChangeQueue, ReceivesFromAFeedOnlyWhileItExists) {
  ChangeFeed feed;
  ChangeQueue stays({&feed});
  { const ChangeQueue ends({&feed}); }
  feed.pod("a");
  EXPECT_EQ(stays.take().pods, Names{"a"});
}

/// A thread in ChangeQueue::run. A test waits for its steps.
class Consumer {
 public:
  explicit Consumer(ChangeFeed& feed) : queue_({&feed}) {
    thread_ = Thread("consumer",
                     [this](const std::stop_token& stop) { queue_.run(clock_, stop, [this] { return step(); }); });
  }
  ~Consumer() {
    thread_.request_stop();
    thread_.join();
  }
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;
  /// Waits for the next step, and returns its changes.
  Changes next() {
    MutexLock lock(mutex_);
    while (!changes_) stepped_.wait(lock);
    return *std::exchange(changes_, std::nullopt);
  }

 private:
  Clock::Time step() {
    const MutexLock lock(mutex_);
    changes_ = queue_.take();
    stepped_.notify_all();
    return clock_.now() + 1h;
  }
  SystemClock clock_;
  ChangeQueue queue_;
  Mutex mutex_;
  Condition stepped_;
  std::optional<Changes> changes_ GUARDED_BY(mutex_);
  Thread thread_;
};

TEST(ChangeQueue, StepsAtTheStartAndAfterEachChangeAndEndsOnStop) {
  ChangeFeed feed;
  Consumer consumer(feed);
  EXPECT_TRUE(consumer.next().empty()) << "the step at the start";
  feed.pod("a");
  EXPECT_EQ(consumer.next().pods, Names{"a"});
  feed.node("n");
  EXPECT_EQ(consumer.next().nodes, Names{"n"});
}

}  // namespace
}  // namespace carve::control
