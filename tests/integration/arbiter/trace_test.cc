#include "arbiter/trace.h"

#include <fstream>

#include "tests/integration/arbiter/fixture.h"

// The recorded inputs of real-time decisions lead to the same decisions again; other inputs lead to other decisions.
namespace carve::arbiter_test {
namespace {

class TraceTest : public ArbiterTest {
 protected:
  std::string trace() override { return runtime_ + "/trace"; }
  std::string file() { return runtime_ + "/trace.GPU-0"; }
  /// Waits until the card has worked this long in total.
  static bool works_for(const Works& works, std::uint64_t ns) {
    return eventually([&] { return works.busy_ns() >= ns; }, 20'000 * kMs);
  }
  /// Three slices compete; one is created and deleted meanwhile.
  void live() {
    put(order("a", 50));
    put(order("b", 30));
    put(order("c", 20, ShareClass::kFixed));
    RawClient a = connect("a");
    RawClient b = connect("b");
    RawClient c = connect("c");
    {
      Works first(a.card());
      Works second(b.card(), 300'000);
      Works third(c.card(), 2'000'000);
      ASSERT_TRUE(works_for(first, 150 * kMs));
      put(order("b", 10));
      ASSERT_TRUE(works_for(first, 250 * kMs));
    }
    ASSERT_TRUE(agent_->drop("b"));
    ASSERT_TRUE(eventually([&] { return !listed("b"); }));
    arbiter_->stop_nicely();  // the trace is complete
  }
};

TEST_F(TraceTest, AReplayMakesTheSameDecisions) {
  live();
  const auto same = arbiter::replay(file());
  ASSERT_TRUE(same) << same.error().what;
  EXPECT_GT(same->decisions, 100U);
  EXPECT_GT(same->changes, 30U);
  EXPECT_EQ(same->most_slices, 3);
  EXPECT_EQ(same->differ, 0U);
}

TEST_F(TraceTest, AReplayWithOneChangedInputDiffers) {
  live();
  // A step at a time that no slice waits for may make no decision; of twenty, several do.
  std::uint64_t differ = 0;
  for (std::int64_t step = 20; step < 220; step += 10) {
    const auto other = arbiter::replay(file(), step);
    ASSERT_TRUE(other);
    differ += other->differ;
  }
  EXPECT_GT(differ, 0U);
}

TEST_F(TraceTest, AnInvalidTraceIsRefusedAndATruncatedOneIsReadToItsEnd) {
  live();
  std::ifstream in(file(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto write = [&](const std::string& bytes) {
    std::ofstream(runtime_ + "/other", std::ios::binary | std::ios::trunc) << bytes;
    return arbiter::replay(runtime_ + "/other");
  };
  const auto cut = write(whole.substr(0, whole.size() / 2));
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->differ, 0U);
  EXPECT_FALSE(write("CARVTRC9" + whole.substr(8)));
  EXPECT_FALSE(write(""));
  EXPECT_FALSE(arbiter::replay(runtime_ + "/no-such-file"));
}

}  // namespace
}  // namespace carve::arbiter_test
