#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sim/model/profiles.h"

// The launch path: memory shared by one client process and the daemon. The client appends commands to a stream's ring.
// It makes a system call only when the daemon sleeps and the stream was empty. The daemon runs the commands on the
// card's timeline and publishes its progress. A query for completion is one load.
namespace carve::sim {

inline constexpr std::uint32_t kMaxStreams = 512;  // per client
inline constexpr std::uint32_t kRingSlots =
    1024;  // commands in flight per stream, as on the hardware
inline constexpr std::uint32_t kMaxTimeSlots = 65536;  // timing events per client
inline constexpr std::uint32_t kNoTimeSlot = ~0U;
inline constexpr std::uint64_t kNoWaiter = ~0ULL;
/// For a stream with at most this many commands in flight, completions are published to the microsecond even when no
/// client waits. A longer backlog is advanced at coarser intervals.
inline constexpr std::uint64_t kExactBacklog = 4;

enum class CommandKind : std::uint32_t {
  kCompute = 1,  // takes the card's compute engine for duration_ns; count = kernels in it
  kCopy = 2,     // takes the copy engine, which runs concurrently with compute and is not time-sliced
  kMark = 3,     // writes the time to time slot `argument` (kNoTimeSlot: to none)
  kWait = 4,     // waits until stream `argument` of this client completed `target` commands
  kHost = 5,     // waits until the client reports the end (host_done)
};

struct Command {
  std::uint64_t submit_ns;  // CLOCK_MONOTONIC of the call
  std::uint64_t duration_ns;
  CommandKind kind;
  std::uint32_t argument;
  std::uint64_t target;  // kWait: commands; kCompute: kernels
};
static_assert(sizeof(Command) == 32);

struct alignas(64) StreamCell {
  // The client writes.
  std::atomic<std::uint64_t>
      submitted;  // commands ever appended; command n is in slot n % kRingSlots
  std::atomic<std::uint64_t> host_done;  // kHost commands below this number are done
  std::atomic<std::uint64_t> wait_for;   // lowest completed count that a thread waits for; kNoWaiter
  std::uint64_t reserved0[5];
  // The daemon writes.
  std::atomic<std::uint64_t> completed;  // commands ever completed
  std::atomic<std::uint64_t> done_ns;    // when the last of them completed
  std::atomic<std::uint32_t> wake_word;  // futex
  std::uint32_t reserved1[11];
};
static_assert(sizeof(StreamCell) == 128);

struct Channel {
  std::uint32_t magic;
  std::uint32_t abi;
  std::atomic<std::uint32_t> faults[kMaxCards];  // written by the daemon: Fault, per card; never reset
  std::uint8_t reserved[4088 - 4 * kMaxCards];
  StreamCell streams[kMaxStreams];
  std::atomic<std::uint64_t> time_slots[kMaxTimeSlots];  // written by kMark, CLOCK_MONOTONIC
  Command rings[kMaxStreams][kRingSlots];
};
inline constexpr std::uint32_t kChannelMagic = 0x4d495343;  // "CSIM"
static_assert(offsetof(Channel, streams) == 4096);

/// One word for all clients: whether the daemon sleeps, and the futex that wakes it.
struct Bell {
  std::atomic<std::uint32_t> armed;
  std::atomic<std::uint32_t> word;  // futex
};

}  // namespace carve::sim
