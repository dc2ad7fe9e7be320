// Tests the measurement of work with an end marker that is late, on another stream or missing. The account page shows
// what it measured; the kernels declare their own duration.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "sim/samples/cuda_program.h"
#include "tests/isolation/driver_calls.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr unsigned kBlocking = 0;
constexpr unsigned kNonBlocking = 1;

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// A program's view of the driver. Kernels have a known length.
struct Program {
  CUfunction kernel(std::uint64_t us) {
    void* module = nullptr;
    CUfunction function = nullptr;
    call("cuModuleLoadData", &module, sample::spin_ptx(us).c_str());
    call("cuModuleGetFunction", &function, module, sample::spin_name(us).c_str());
    return function;
  }
  CUstream stream(unsigned flags = kNonBlocking) {
    CUstream made = nullptr;
    call("cuStreamCreate", &made, flags);
    return made;
  }
  static CUresult launch(CUfunction function, CUstream on, unsigned threads = 1, const char* how = "cuLaunchKernel") {
    void** none = nullptr;
    return call(how, function, 1U, 1U, 1U, threads, 1U, 1U, 0U, on, none, none);
  }
  static CUresult begin_capture(CUstream on, int mode) { return call("cuStreamBeginCapture_v2", on, mode); }
  static CUresult end_capture(CUstream on) {
    CUgraph graph = nullptr;
    return call("cuStreamEndCapture", on, &graph);
  }
  /// `other` joins the capture of `origin`.
  static CUresult join(CUstream origin, CUstream other) {
    CUevent event = nullptr;
    call("cuEventCreate", &event, 2U);
    const CUresult recorded = call("cuEventRecord", event, origin);
    return recorded != 0 ? recorded : call("cuStreamWaitEvent", other, event, 0U);
  }
};

class Markers : public SliceTest {
 protected:
  void SetUp() override {
    SliceTest::SetUp();
    if (!IsSkipped()) start_slice(~std::uint64_t{0} >> 1, 30);
  }
  // In the child. Its library has the first account entry. The page is shared with the server.
  abi::AccountEntry& entry() { return slice_->account(0).entries[0]; }
  std::uint64_t measured_ms() { return entry().busy_ns.load_acquire() / kMs; }
  bool busy() { return entry().busy.load_acquire() != 0; }
  /// True when nothing is in flight any more within `ms`, according to the account.
  bool ends_within(int ms) {
    for (int waited = 0; waited < ms && (busy() || entry().inflight_ns.load_relaxed() != 0); ++waited) pause_ms(1);
    return !busy() && entry().inflight_ns.load_relaxed() == 0;
  }
};

TEST_F(Markers, ACaptureOnAnIdleStreamLeavesOthersMeasured) {
  for (const int mode : {0, 1, 2}) {  // global, thread-local, relaxed
    start_slice(~std::uint64_t{0} >> 1, 30);
    EXPECT_EQ(in_child([&] {
      if (start_driver() != 0) return 1;
      Program program;
      const CUfunction kernel = program.kernel(5'000);
      const CUstream idle = program.stream();
      const CUstream works = program.stream();
      if (Program::begin_capture(idle, mode) != 0) return 2;
      for (int i = 0; i < 4; ++i) {
        if (Program::launch(kernel, works) != 0) return 3;
      }
      if (!ends_within(2'000)) return 4;
      if (measured_ms() < 19 || measured_ms() > 60) return 5;
      return Program::end_capture(idle) == 0 ? 0 : 6;  // it contains no marker
    }), 0) << "mode " << mode;
  }
}

TEST_F(Markers, WorkOfAStreamThatJoinsACaptureIsInFlightUntilTheCaptureEnds) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(2'000);
    const CUstream origin = program.stream();
    const CUstream joins = program.stream();
    if (Program::begin_capture(origin, 2) != 0) return 2;
    if (Program::launch(kernel, joins) != 0) return 3;
    if (Program::join(origin, joins) != 0) return 4;
    pause_ms(60);
    if (!busy()) return 5;  // it ended long ago, but no marker can report that
    if (Program::join(joins, origin) != 0) return 6;
    if (Program::end_capture(origin) != 0) return 7;
    if (!ends_within(2'000)) return 8;
    return measured_ms() >= 2 ? 0 : 9;
  }), 0);
}

TEST_F(Markers, OpenWorkIsMeasuredWhenACaptureBegins) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(20'000);
    const CUstream origin = program.stream();
    const CUstream joins = program.stream();
    if (Program::launch(kernel, joins) != 0) return 2;
    if (Program::launch(kernel, origin) != 0) return 3;
    if (Program::begin_capture(origin, 0) != 0) return 4;
    if (Program::join(origin, joins) != 0) return 5;
    if (!ends_within(2'000)) return 6;  // while the capture is open
    return measured_ms() >= 39 ? 0 : 7;
  }), 0);
}

TEST_F(Markers, AStreamDestroyedWhileItCapturesCountsByTheClock) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(15'000);
    const CUstream origin = program.stream();
    const CUstream joins = program.stream();
    if (Program::begin_capture(origin, 2) != 0) return 2;
    if (Program::launch(kernel, joins) != 0) return 3;
    if (Program::join(origin, joins) != 0) return 4;
    pause_ms(2);
    if (call("cuStreamDestroy_v2", joins) != 0) return 5;
    if (!busy()) return 6;
    if (!ends_within(2'000)) return 7;
    return measured_ms() >= 1 ? 0 : 8;
  }), 0);
}

TEST_F(Markers, TheLegacyStreamDuringACaptureIsMeasuredOrRefused) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(5'000);
    const CUstream harmless = program.stream(kNonBlocking);
    if (Program::begin_capture(harmless, 0) != 0) return 2;
    if (Program::launch(kernel, nullptr) != 0) return 3;
    if (!ends_within(2'000) || measured_ms() < 5) return 4;
    if (Program::end_capture(harmless) != 0) return 5;
    // A blocking stream depends on the legacy stream: open work there ends first, and no marker invalidates the
    // capture.
    const CUstream blocking = program.stream(kBlocking);
    if (Program::launch(kernel, nullptr) != 0) return 6;
    if (Program::begin_capture(blocking, 0) != 0) return 7;
    if (!ends_within(2'000) || measured_ms() < 10) return 8;
    return Program::end_capture(blocking) == 0 ? 0 : 9;
  }), 0);
}

TEST_F(Markers, TheFailedEndOfACaptureEndsNoOtherCapture) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(5'000);
    const CUstream captures = program.stream();
    const CUstream idle = program.stream();
    if (Program::begin_capture(captures, 2) != 0) return 2;
    for (int i = 0; i < 3; ++i) {
      if (Program::end_capture(idle) == 0) return 3;
    }
    for (int i = 0; i < 10; ++i) {
      if (Program::launch(kernel, captures) != 0) return 4;
    }
    if (entry().inflight_ns.load_relaxed() != 0) return 5;  // it became part of the graph and did not run
    CUgraph graph = nullptr;
    std::size_t nodes = 0;
    CUgraphNode* none = nullptr;
    if (call("cuStreamEndCapture", captures, &graph) != 0) return 6;
    if (call("cuGraphGetNodes", graph, none, &nodes) != 0) return 7;
    return nodes == 10 ? 0 : 8;
  }), 0);
}

TEST_F(Markers, AnotherThreadsOwnStreamIsNotMistakenForTheHelpers) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    // Long enough that it still runs when this thread waits for a processor during the pause.
    const CUfunction kernel = program.kernel(500'000);
    if (Program::launch(kernel, nullptr, 1, "cuLaunchKernel_ptsz") != 0) return 2;
    pause_ms(10);  // the helper has closed what this thread left
    if (!busy()) return 3;
    return ends_within(5'000) ? 0 : 4;
  }), 0);
}

TEST_F(Markers, WorkOnAStreamOfAnotherContextIsMeasured) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(10'000);
    const CUstream stream = program.stream();
    CUcontext other = nullptr;
    if (call("cuCtxCreate_v2", &other, 0U, CUdevice{0}) != 0) return 2;  // and it is current now
    const CUresult launched = Program::launch(kernel, stream);
    if (launched != 0) return 0;  // this driver requires the stream's own context: nothing to measure
    if (!ends_within(2'000)) return 3;
    return measured_ms() >= 10 ? 0 : 4;
  }), 0);
}

TEST_F(Markers, WorkInMoreContextsThanTheLibraryKeepsATimeForIsMeasured) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    std::uint64_t wanted = 0;
    for (int i = 0; i < 12; ++i) {
      CUcontext context = nullptr;
      if (call("cuCtxCreate_v2", &context, 0U, CUdevice{0}) != 0) return 2;
      Program program;
      if (Program::launch(program.kernel(5'000), program.stream()) != 0) return 3;
      if (!ends_within(2'000)) return 4;
      wanted += 5;
    }
    return measured_ms() >= wanted - 1 ? 0 : 5;
  }), 0);
}

TEST_F(Markers, SegmentsBeyondTheRememberedOnesCountAsExpected) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(100);
    const CUstream streams[2] = {program.stream(), program.stream()};
    if (Program::launch(kernel, streams[0]) != 0 || !ends_within(2'000)) return 2;
    const std::uint64_t before = entry().busy_ns.load_acquire();
    for (int i = 0; i < 600; ++i) {
      if (Program::launch(kernel, streams[i % 2]) != 0) return 3;  // each ends the previous segment
    }
    if (!ends_within(4'000)) return 4;
    const std::uint64_t counted = entry().busy_ns.load_acquire() - before;
    if (counted < 50 * kMs) std::fprintf(stderr, "counted %.1f ms\n", static_cast<double>(counted) / 1e6);
    return counted >= 50 * kMs ? 0 : 5;
  }), 0);
}

TEST_F(Markers, AContextDestroyedWithWorkInFlightLeavesNothingInFlight) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    CUcontext context = nullptr;
    if (call("cuCtxCreate_v2", &context, 0U, CUdevice{0}) != 0) return 2;
    Program program;
    if (Program::launch(program.kernel(15'000), program.stream()) != 0) return 3;
    if (call("cuCtxDestroy_v2", context) != 0) return 4;
    if (!ends_within(2'000)) return 5;
    return measured_ms() >= 1 ? 0 : 6;
  }), 0);
}

// Costs are remembered by the properties that decide them: the same function and grid with other blocks is other work.
TEST_F(Markers, DurationsDependOnTheBlock) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(20'000);
    const CUstream stream = program.stream();
    if (Program::launch(kernel, stream, 1) != 0 || !ends_within(2'000)) return 2;
    if (Program::launch(kernel, stream, 1) != 0) return 3;
    if (entry().inflight_ns.load_relaxed() < 18 * kMs) return 4;  // its cost is known now
    if (!ends_within(2'000)) return 5;
    if (Program::launch(kernel, stream, 1024) != 0) return 6;
    // This cost is unknown: a solo lane reserves a default.
    return entry().inflight_ns.load_relaxed() <= 10 * kMs ? 0 : 7;
  }), 0);
}

// An updated graph is another graph under the same handle.
TEST_F(Markers, AnUpdatedGraphIsMeasuredAgain) {
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    Program program;
    const CUfunction kernel = program.kernel(20'000);
    const CUstream stream = program.stream();
    CUgraph graph = nullptr;
    CUgraphExec ready = nullptr;
    if (Program::begin_capture(stream, 0) != 0 || Program::launch(kernel, stream) != 0) return 2;
    if (call("cuStreamEndCapture", stream, &graph) != 0) return 3;
    if (call("cuGraphInstantiateWithFlags", &ready, graph, 0ULL) != 0) return 4;
    if (call("cuGraphLaunch", ready, stream) != 0 || !ends_within(2'000)) return 5;
    if (call("cuGraphLaunch", ready, stream) != 0) return 6;
    if (entry().inflight_ns.load_relaxed() < 18 * kMs) return 7;
    if (!ends_within(2'000)) return 8;
    std::array<char, 256> told{};
    if (call("cuGraphExecUpdate_v2", ready, graph, static_cast<void*>(told.data())) != 0) return 9;
    if (call("cuGraphLaunch", ready, stream) != 0) return 10;
    return entry().inflight_ns.load_relaxed() <= 10 * kMs ? 0 : 11;
  }), 0);
}

}  // namespace
}  // namespace carve::isolation
