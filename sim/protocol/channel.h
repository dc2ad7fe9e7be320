#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sim/model/profiles.h"

// The launch path: memory shared by one client process and the daemon. The client appends commands
// to a stream's ring and never makes a system call for it unless the daemon sleeps and the stream
// was empty; the daemon plays them on the card's timeline and publishes how far it came. Asking "is
// it done" is one load.
namespace carve::sim {

inline constexpr std::uint32_t kMaxStreams = 512;  // per client
inline constexpr std::uint32_t kRingSlots =
    1024;  // commands in flight per stream, as on the hardware
inline constexpr std::uint32_t kMaxTimeSlots = 65536;  // timing events per client
inline constexpr std::uint32_t kNoTimeSlot = ~0U;
inline constexpr std::uint64_t kNobodyWaits = ~0ULL;
/// A stream with at most this many commands in flight has its completions published to the
/// microsecond without anybody saying that they wait; a longer backlog is looked at on a coarser
/// grid.
inline constexpr std::uint64_t kExactBacklog = 4;

enum class CommandKind : std::uint32_t {
  kCompute = 1,  // takes the card's compute engine for duration_ns; count = kernels in it
  kCopy = 2,     // takes the copy engine, which runs beside compute and is not time-sliced
  kMark = 3,     // writes the time to time slot `argument` (kNoTimeSlot: to none)
  kWait = 4,     // until stream `argument` of this client completed `target` commands
  kHost = 5,     // until the client itself says that it is done (host_done)
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
      submitted;  // commands ever appended; command n lies in slot n % kRingSlots
  std::atomic<std::uint64_t> host_done;  // kHost commands below this number are done
  std::atomic<std::uint64_t> wait_for;   // lowest completed count somebody waits for; kNobodyWaits
  std::uint64_t reserved0[5];
  // The daemon writes.
  std::atomic<std::uint64_t> completed;  // commands ever completed
  std::atomic<std::uint64_t> done_ns;    // when the last of them was
  std::atomic<std::uint32_t> wake_word;  // futex
  std::uint32_t reserved1[11];
};
static_assert(sizeof(StreamCell) == 128);

struct Channel {
  std::uint32_t magic;
  std::uint32_t abi;
  std::atomic<std::uint32_t> faults[kMaxCards];  // by the daemon: Fault, per card; it stays
  std::uint8_t reserved[4088 - 4 * kMaxCards];
  StreamCell streams[kMaxStreams];
  std::atomic<std::uint64_t> time_slots[kMaxTimeSlots];  // written by kMark, CLOCK_MONOTONIC
  Command rings[kMaxStreams][kRingSlots];
};
inline constexpr std::uint32_t kChannelMagic = 0x4d495343;  // "CSIM"
static_assert(offsetof(Channel, streams) == 4096);

/// One word for all clients: whether the daemon sleeps and how to wake it.
struct Bell {
  std::atomic<std::uint32_t> armed;
  std::atomic<std::uint32_t> word;  // futex
};

}  // namespace carve::sim
