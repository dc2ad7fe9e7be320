#include "arbiter/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

namespace carve::arbiter {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kAddBytes = 4 + 4 + 16;  // kind, slice, terms
constexpr std::size_t kStepBytes = 4 + 8 + 4;  // kind, time, count; then one record per slice

class TraceFile : public ::testing::Test {
 protected:
  TraceFile() { path_ = ::testing::TempDir() + "carve-trace-" + std::to_string(getpid()); }
  ~TraceFile() override { std::remove(path_.c_str()); }
  /// Two slices, terms that change, a slice that ends, and steps in between. Sets the ends of the records.
  std::string recorded() {
    lease::Arbiter arbiter;
    std::vector<lease::Observation> seen(lease::kMaxSlices);
    {
      auto trace = Trace::create(path_, log_);
      std::uint64_t now = 1'000'000'000;
      const auto steps = [&] {
        for (int i = 0; i < 4; ++i) {
          seen[0].want = seen[1].want = true;
          now += 5'000'000;
          arbiter.step(now, seen.data());
          trace->stepped(now, arbiter, seen.data());
        }
      };
      const lease::Terms terms{40, abi::ShareClass::kBurst, abi::PriorityClass::kStandard};
      trace->added(arbiter.add(terms), terms);
      trace->added(arbiter.add(terms), terms);
      steps();
      arbiter.set_terms(1, terms);
      trace->changed(1, terms);
      steps();
      arbiter.remove(0);
      trace->removed(0);
      steps();
    }
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Result<Replayed> replayed(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return replay(path_);
  }
  /// The error of the trace with this number at this place.
  std::string error_with(std::string bytes, std::size_t at, std::uint32_t number) {
    std::memcpy(bytes.data() + at, &number, sizeof number);
    const auto result = replayed(bytes);
    return result ? "" : result.error().what;
  }

  std::string path_;
  std::vector<std::string> lines_;
  Log log_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(TraceFile, AReplayMakesTheRecordedDecisions) {
  const auto result = replayed(recorded());
  ASSERT_TRUE(result) << result.error().what;
  EXPECT_EQ(result->steps, 12U);
  EXPECT_EQ(result->decisions, 20U);
  EXPECT_EQ(result->most_slices, 2);
  EXPECT_EQ(result->differ, 0U);
  EXPECT_EQ(result->truncated_at, 0U);
}

TEST_F(TraceFile, ACutRecordIsReported) {
  const std::string whole = recorded();
  std::set<std::uint64_t> ends;
  for (std::size_t length = kHeaderBytes; length < whole.size(); ++length) {
    const auto result = replayed(whole.substr(0, length));
    ASSERT_TRUE(result) << result.error().what;
    EXPECT_EQ(result->differ, 0U);
    if (result->truncated_at == 0) ends.insert(length);
    EXPECT_EQ(result->truncated_at == 0 ? length : result->truncated_at, *ends.rbegin()) << length;
  }
  EXPECT_EQ(ends.size(), 16U) << "the ends of all records except the last one, and of the header";
}

TEST_F(TraceFile, ARecordThatNoArbiterWritesIsAnError) {
  const std::string whole = recorded();
  const std::size_t second = kHeaderBytes + kAddBytes;
  EXPECT_THAT(error_with(whole, second, 9), HasSubstr("record at byte 32: unknown kind of record: 9"));
  EXPECT_THAT(error_with(whole, second + 4, 7), HasSubstr("slice 7 is added where 1 is the next number"));
  for (const std::size_t term : {8U, 12U, 16U, 20U})
    EXPECT_THAT(error_with(whole, second + term, 101), HasSubstr("illegal terms"));
  const std::size_t step = second + kAddBytes;
  EXPECT_THAT(error_with(whole, step + 12, 128), HasSubstr("a step with 128 slices where there are 2"));
  EXPECT_THAT(error_with(whole, step + 12, 0xffff'ffff), HasSubstr("a step with 4294967295 slices"));
  EXPECT_THAT(error_with(whole, step + kStepBytes + 52, 0), HasSubstr("slice 0 is missing"));
}

TEST_F(TraceFile, ASliceThatDoesNotExistIsAnError) {
  const std::string header = recorded().substr(0, kHeaderBytes);
  for (const std::int32_t slice : {0, 127, 128, 1'000'000, -1}) {
    for (const std::uint32_t kind : {2U, 3U}) {
      std::string bytes = header + std::string(kAddBytes, '\0');
      std::memcpy(bytes.data() + kHeaderBytes, &kind, sizeof kind);
      EXPECT_THAT(error_with(bytes, kHeaderBytes + 4, static_cast<std::uint32_t>(slice)),
                  HasSubstr("and does not exist"));
    }
  }
}

TEST_F(TraceFile, AFailedWriteIsReportedOnce) {
  lease::Arbiter arbiter;
  const lease::Terms terms;
  std::vector<lease::Observation> seen(lease::kMaxSlices);
  {
    auto trace = Trace::create("/dev/full", log_);
    ASSERT_TRUE(trace);
    trace->added(arbiter.add(terms), terms);
    EXPECT_TRUE(lines_.empty()) << "the file is written in blocks";
    for (int i = 0; i < 1000; ++i) trace->stepped(1, arbiter, seen.data());
    ASSERT_EQ(lines_.size(), 1U);
    EXPECT_THAT(lines_[0], HasSubstr("No space left on device"));
  }
  EXPECT_EQ(lines_.size(), 1U);
  { ASSERT_TRUE(Trace::create("/dev/full", log_)); }
  EXPECT_EQ(lines_.size(), 2U) << "the last block fails when the file is closed";
}

}  // namespace
}  // namespace carve::arbiter
