#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "sim/daemon/account.h"
#include "sim/daemon/inheriting_mutex.h"
#include "sim/model/profiles.h"
#include "sim/protocol/channel.h"
#include "sim/protocol/messages.h"

// The kernel side of the simulated driver: the connected processes, what each holds, and what each card runs. One lock
// covers all of it. The lock has priority inheritance, because the timeline runs at real-time priority.
namespace carve::sim {

struct Client;

/// The longest duration of a command (eleven days), regardless of what its client wrote.
inline constexpr std::uint64_t kLongestNs = 1'000'000'000'000'000;

/// A stream in the daemon. The client may write the shared cell at any time.
struct Stream {
  Client* client = nullptr;
  std::uint32_t index = 0;
  std::uint32_t card = 0;
  bool closing = false;
  bool dead = false;  // its context is dead: submitted commands do not run
  StreamCell* cell = nullptr;
  Command* ring = nullptr;
  std::uint64_t head = 0;          // commands completed
  std::uint64_t tail = 0;          // commands seen
  bool started = false;            // the head command has begun
  std::uint64_t remaining_ns = 0;  // time left for the head command, once started

  [[nodiscard]] bool pending() const { return head < tail; }
  [[nodiscard]] std::uint64_t duration(std::uint64_t n) const {
    return std::min(ring[n % kRingSlots].duration_ns, kLongestNs);
  }
  [[nodiscard]] const Command& front() const { return ring[head % kRingSlots]; }
};

/// The reason for a memory charge: a program's request, or the driver's own need.
enum class Charge : std::uint8_t { kExplicit, kContext, kModule };

struct Shared;

struct Allocation {
  std::uint32_t card = 0;
  Charge charge = Charge::kExplicit;
  std::uint64_t bytes = 0;
  std::shared_ptr<Shared> shared;  // nullptr: no other client can open it
};

/// Memory that other clients may open. The first of its holders is charged.
struct Shared {
  std::uint64_t token = 0;
  std::vector<std::pair<Client*, std::uint64_t>> holders;  // with each holder's handle
};

/// One connection of a process.
struct Client {
  std::uint64_t id = 0;  // always increasing: the round-robin order
  std::int32_t pid = 0;
  int socket = -1;
  int pidfd = -1;
  ClientKind kind = ClientKind::kQuery;
  bool watches = false;  // subscribed to events
  std::string name;
  std::string cgroup;
  Channel* channel = nullptr;
  std::uint64_t next_handle = 1;
  std::unordered_map<std::uint64_t, Allocation> allocations;
  std::unordered_map<std::uint32_t, std::unique_ptr<Stream>> streams;
  std::shared_ptr<Account> accounts[kMaxCards];
};

/// One card's engines.
struct Engine {
  std::vector<Stream*> streams;  // open on this card
  Client* current = nullptr;     // the client of the loaded context
  Stream* running = nullptr;     // on the compute engine
  Stream* copying = nullptr;     // on the copy engine
  bool switching = false;
  std::uint64_t switch_end = 0;
  std::uint64_t slice_end = 0;
  std::uint64_t used_bytes = 0;  // by processes: granules and contexts
  std::uint64_t gpu_ns = 0;
  std::uint64_t switch_ns = 0;
  std::uint64_t switches = 0;
  bool lost = false;            // fallen off the bus
  bool down = false;            // accepts no new context until it is reset
  std::uint32_t recovery = 0;   // the action that the driver recommends, by NVML's numbers
  std::uint64_t xids = 0;       // events so far
  History busy;  // compute engine, including switches
  History copy_busy;
};

class Kernel {
 public:
  Kernel(const Machine& machine, std::uint64_t boot_ns);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  class SCOPED_CAPABILITY Lock {
   public:
    explicit Lock(Kernel& kernel) ACQUIRE(kernel.mutex_) : kernel_(kernel) { kernel_.mutex_.lock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() RELEASE() { kernel_.mutex_.unlock(); }

   private:
    Kernel& kernel_;
  };
  InheritingMutex& mutex() const RETURN_CAPABILITY(mutex_) { return mutex_; }

  Client* add_client(std::unique_ptr<Client> client, std::uint64_t now) REQUIRES(mutex_);
  /// Frees everything that the client held. Its account stays for a while.
  void remove_client(Client* client, std::uint64_t now) REQUIRES(mutex_);
  /// Removes the clients of dead processes; returns their sockets for the server to close.
  std::vector<int> reap(std::uint64_t now) REQUIRES(mutex_);

  /// `bytes` is ignored for a context: its size comes from the model.
  Status allocate(Client& client, std::uint32_t card, std::uint64_t bytes, Charge charge, std::uint64_t* handle)
      REQUIRES(mutex_);
  /// kNoSuchHandle for a handle of another kind: contexts are destroyed, memory is freed.
  Status release(Client& client, std::uint64_t handle, bool context) REQUIRES(mutex_);
  /// Returns a token with which any client can open this explicit memory.
  Status share(Client& client, std::uint64_t handle, std::uint64_t* token) REQUIRES(mutex_);
  Status open_shared(Client& client, std::uint64_t token, std::uint64_t* handle) REQUIRES(mutex_);
  Status open_stream(Client& client, std::uint32_t card, std::uint64_t* index) REQUIRES(mutex_);
  Status close_stream(Client& client, std::uint64_t index) REQUIRES(mutex_);

  /// Raises an XID on the card as the driver does: the code decides which contexts die and whether the card continues
  /// (faults.cc). `pid`: the process at fault, for an XID of one process; 0: the process of the loaded context.
  void xid(std::uint32_t card, std::uint32_t code, std::int32_t pid) REQUIRES(mutex_);
  /// Brings the card back, as after a reset. Contexts that died stay dead.
  void restore(std::uint32_t card) REQUIRES(mutex_);
  /// Like restore().
  ///   errors  kBusy: a process has a context on the card
  Status reset(std::uint32_t card) REQUIRES(mutex_);

  /// Runs all cards up to `now` (timeline.cc).
  void advance(std::uint64_t now) REQUIRES(mutex_);
  /// When the timeline must be advanced again; ~0 when nothing is pending (wake.cc). `awaited`: true when a client
  /// waits for the command that is due then, false when only a long backlog must be advanced.
  [[nodiscard]] std::uint64_t next_wake(std::uint64_t now, bool* awaited = nullptr) const REQUIRES(mutex_);
  /// True when a client appended or acknowledged something that `advance` has not processed.
  [[nodiscard]] bool anything_new() const REQUIRES(mutex_);

  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] std::uint64_t boot_ns() const { return boot_ns_; }
  [[nodiscard]] const Engine& engine(std::uint32_t card) const REQUIRES(mutex_) { return engines_[card]; }
  [[nodiscard]] const std::unordered_map<int, std::unique_ptr<Client>>& clients() const REQUIRES(mutex_) {
    return clients_;
  }
  [[nodiscard]] const std::deque<std::shared_ptr<Account>>& accounts() const REQUIRES(mutex_) { return accounts_; }
  using Groups = std::map<std::pair<std::string, std::uint32_t>, std::unique_ptr<Group>>;
  [[nodiscard]] const Groups& groups() const REQUIRES(mutex_) { return groups_; }

 private:
  friend class Timeline;
  Group* group_of(const std::string& cgroup, std::uint32_t card) REQUIRES(mutex_);
  void drop_stream(Stream* stream) REQUIRES(mutex_);
  void kill_contexts(Client& client, std::uint32_t card, Fault fault) REQUIRES(mutex_);
  void forget_dead(std::uint64_t now) REQUIRES(mutex_);
  void charge(Account& account, const Allocation& allocation, std::int64_t sign) REQUIRES(mutex_);
  void let_go(Client& client, std::uint64_t handle, const Allocation& allocation) REQUIRES(mutex_);

  const Machine machine_;
  const std::uint64_t boot_ns_;
  mutable InheritingMutex mutex_;
  std::uint64_t time_ GUARDED_BY(mutex_);  // the time up to which the timeline has run
  std::uint64_t next_client_ GUARDED_BY(mutex_) = 1;
  Engine engines_[kMaxCards] GUARDED_BY(mutex_);
  std::unordered_map<int, std::unique_ptr<Client>> clients_ GUARDED_BY(mutex_);  // by socket
  std::deque<std::shared_ptr<Account>> accounts_ GUARDED_BY(mutex_);  // of living and recently dead processes
  Groups groups_ GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::shared_ptr<Shared>> shared_ GUARDED_BY(mutex_);  // by token
  std::size_t forget_at_ GUARDED_BY(mutex_) = 256;  // the number of accounts at which old ones are dropped
};

/// CLOCK_MONOTONIC in nanoseconds.
std::uint64_t monotonic_ns();

}  // namespace carve::sim
