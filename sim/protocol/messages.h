#pragma once

#include <cstddef>
#include <cstdint>

// The control path: plain data over a SOCK_SEQPACKET unix socket. A request is followed by one or more reply packets (a
// header, then `count` records; the last packet has more == 0). The peer credentials of the connection identify the
// caller. Both simulated libraries and carve-simctl use it (client.h).
namespace carve::sim {

inline constexpr char kSocketPath[] = "/run/nvidia-sim/socket";
inline constexpr std::uint32_t kProtocolAbi = 4;
inline constexpr std::size_t kMaxPacket = 64U << 10;

enum class Op : std::uint32_t {  // requests of any client
  kHello = 1,  // a = kProtocolAbi, b = ClientKind → one MachineRecord; kCuda: channel + bell memfds
  kCardStatus = 2,     // card → one CardStatusRecord
  kCardProcesses = 3,  // card → ProcessRecord per process that holds a context on the card
  kCardSamples = 4,    // card, a = since_us (CLOCK_REALTIME) → SampleRecord (pid 0), oldest first
  kProcessSamples = 5,  // card, a = since_us → SampleRecord per process and sample period
  kCardState = 6,       // card → a = CardState bits; kCardLost when the card is lost
  kWatchEvents = 7,     // → kOk, and from then on one packet with an EventRecord per event
  // CUDA clients.
  kContextCreate = 16,   // card → a = handle
  kContextDestroy = 17,  // a = handle
  kAlloc = 18,           // card, a = bytes → a = handle, explicit memory
  kFree = 19,            // a = handle
  kStreamOpen = 20,      // card → a = stream index
  kStreamClose = 21,     // a = stream index; commands in flight still run
  kModuleAlloc = 22,     // like kAlloc, for the global variables of a module: memory that the driver itself takes
  kShare = 23,           // a = handle → a = token with which other clients open it; one holder is charged
  kOpenShared = 24,      // a = token → a = handle
  // The truth account, for tests and demonstrations.
  kAccount = 32,  // → AccountRecord per (process, card), including dead processes of the last minutes
  kGroups = 33,   // → GroupRecord per (cgroup, card)
  // a = window_ms (≥ 10, multiple of 10), b = since_ns (CLOCK_MONOTONIC, 0 = all kept) → WindowRecord per
  kWindows = 34,  // (process, card, whole window); windows begin at multiples of their length
  kCards = 35,    // → CardTruthRecord per card
  // Faults: only root in the daemon's own PID namespace.
  kInject = 48,  // card, a = Injection, b = its argument, c = PID of the process at fault (0: the running process)
};

enum class Injection : std::uint64_t {
  kXid = 1,     // b = code
  kLose = 2,    // the card falls off the bus (XID 79)
  kReturn = 3,  // the card is back, as after a reset
  kReset = 4,   // refused while a process has a context on it
  kHang = 5,    // b = 1: management calls get no answer until b = 0
  kDriver = 6,  // b = 0: the driver cannot be opened; b = 1: it can
};

/// The answer of kCardState, from the low bits: the recommended action (NVML's numbers), then flags.
inline constexpr std::uint64_t kRecoveryMask = 0xff;
inline constexpr std::uint64_t kCardDown = 0x100;  // accepts no new context
/// The fault that ended a process's contexts on a card (Channel::faults); 0: none.
enum class Fault : std::uint32_t {
  kNone = 0,
  kIllegalAddress = 1,
  kLaunchFailed = 2,
  kUncorrectableEcc = 3,
  kUnknown = 4,
};

enum class Status : std::int32_t {
  kOk = 0,
  kNoMemory = 1,
  kNoSuchCard = 2,
  kNoSuchHandle = 3,
  kBadRequest = 4,
  kTooMany = 5,
  kWrongAbi = 6,
  kGone = 7,  // the driver cannot be opened; set by the client side: no daemon, or the connection broke
  kCardLost = 8,
  kNotPermitted = 9,
  kBusy = 10,
  kTimedOut = 11,  // set by the client side
};

/// kQuery: a management library. kControl: a tool that inspects the daemon itself; it never hangs.
enum class ClientKind : std::uint32_t { kCuda = 1, kQuery = 2, kControl = 3 };

struct Request {
  Op op;
  std::uint32_t card;
  std::uint64_t a;
  std::uint64_t b;
  std::uint64_t c;
};
static_assert(sizeof(Request) == 32);
struct Reply {
  Status status;
  std::uint32_t count;         // records in this packet
  std::uint32_t record_bytes;  // size of each
  std::uint32_t more;          // not 0: another packet follows
  std::uint64_t a;
  std::uint64_t b;
};
static_assert(sizeof(Reply) == 32);

/// The input of parse_machine (model/profiles.h), which rebuilds all static facts.
struct MachineRecord {
  char profile[32];
  char instance[64];
  std::uint64_t boot_ns;  // CLOCK_MONOTONIC at the daemon's start
  std::int32_t pid;       // the calling process's PID in the daemon's PID namespace
  std::uint32_t reserved;
};

struct CardStatusRecord {
  std::uint64_t total_bytes;
  std::uint64_t reserved_bytes;
  std::uint64_t used_bytes;   // by processes: explicit (2 MiB granules) and contexts
  std::uint64_t now_us;       // CLOCK_REALTIME
  std::uint32_t gpu_percent;  // of the last finished sample period (1/6 s)
  std::uint32_t memory_percent;
  std::uint32_t copy_percent;
  std::uint32_t contexts;
  std::uint32_t active;  // not 0: the engine is running work now
  std::uint32_t reserved;
  std::uint64_t busy_ns;  // compute engine, since the daemon's start
};

struct ProcessRecord {
  std::int32_t pid;
  std::uint32_t contexts;
  std::uint64_t used_bytes;  // as the driver would report it: granules and contexts
  char name[16];
};

/// Sent to each client that subscribed.
struct EventRecord {
  std::uint32_t card;
  std::uint32_t xid;
  std::uint64_t time_ns;  // CLOCK_MONOTONIC
};

struct SampleRecord {
  std::uint64_t end_us;  // CLOCK_REALTIME at the end of the period
  std::int32_t pid;      // 0: the card
  std::uint32_t gpu_percent;
  std::uint32_t memory_percent;
  std::uint32_t reserved;
};

struct AccountRecord {
  std::int32_t pid;
  std::uint32_t card;
  std::uint32_t alive;
  std::uint32_t contexts;
  std::uint64_t explicit_bytes;  // exactly what was requested and granted
  std::uint64_t explicit_high;   // its highest value ever
  std::uint64_t granule_bytes;   // the card's memory that it uses
  std::uint64_t context_bytes;
  std::uint64_t module_bytes;  // global variables of modules: not explicit, but in granule_bytes
  std::uint64_t gpu_ns;    // compute engine time delivered
  std::uint64_t copy_ns;   // copy engine time delivered
  std::uint64_t launches;  // kernels completed
  std::uint64_t allocations;
  std::uint64_t refused;  // allocations refused for lack of memory on the card
  std::uint64_t started_ns;
  std::uint64_t ended_ns;  // 0: alive
  char name[16];
  char cgroup[200];  // cgroup v2 path at connect
};

struct GroupRecord {
  char cgroup[200];
  std::uint32_t card;
  std::uint32_t processes;       // alive now
  std::uint64_t explicit_bytes;  // sum over the group's processes
  std::uint64_t explicit_high;   // highest sum at any instant, kept at every grant
  std::uint64_t context_bytes;
  std::uint64_t gpu_ns;
  std::uint64_t grants;
};

struct WindowRecord {
  std::int32_t pid;
  std::uint32_t card;
  std::uint64_t start_ns;  // CLOCK_MONOTONIC
  std::uint64_t gpu_ns;
};

struct CardTruthRecord {
  char uuid[48];
  std::uint32_t card;
  std::uint32_t contexts;
  std::uint64_t total_bytes;
  std::uint64_t explicit_bytes;
  std::uint64_t context_bytes;
  std::uint64_t used_bytes;
  std::uint64_t gpu_ns;     // delivered to processes
  std::uint64_t switch_ns;  // lost to context switches
  std::uint64_t switches;
  std::uint64_t xids;      // events so far
  std::uint32_t lost;      // not 0: fallen off the bus
  std::uint32_t recovery;  // the action that the driver recommends, by NVML's numbers
};

}  // namespace carve::sim
