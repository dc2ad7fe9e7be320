#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "abi/page.h"
#include "lease/arbiter.h"
#include "lease/gate.h"
#include "lease/observe.h"

// The exact bench of compute shares: clients, arbiter and one card in virtual time, by discrete events. Clients go
// through lease::Gate and the arbiter is lease::Arbiter, both from the files that run in production. The card is a
// model: round-robin time slices between processes, a switch cost, first in first out within a process. Work that a
// process has queued runs to its end, regardless of later decisions. The simulated driver does the same in real time
// (sim/daemon/timeline.cc).
namespace carve::share {

/// The work of one tenant. Each of its processes does it.
struct Workload {
  std::uint64_t kernel_ns = 500'000;
  bool sync = false;           // waits for each kernel before the next launch
  std::uint32_t graph_of = 1;  // kernels per launch
  std::uint64_t start_ns = 0;
  double spread = 0.25;        // log-normal spread of durations
  std::uint32_t processes = 1;
  std::uint64_t later_kernel_ns = 0;  // under the same key, in every second period of `change_every_ns`
  std::uint64_t change_every_ns = 0;
  bool hangs = false;          // a host function that does not return is in flight from the start
  bool shares_credit = true;   // false: a library that accounts only for its own process
  bool measured = true;        // false: no end marker can be recorded
  std::uint32_t request_of = 0;  // kernels of one request, which is waited for; 0: launches without end
  std::uint64_t period_ns = 0;   // requests arrive this often, regardless of whether the previous one has ended
};

struct Tenant {
  std::string name;
  lease::Terms terms;
  Workload work;
};

/// The card and the machine around it. The durations are design figures; none was measured on a real card.
struct Machine {
  std::uint64_t slice_ns = 1'024'000;
  std::uint64_t switch_ns = 100'000;
  std::uint64_t launch_cpu_ns = 4'000;
  std::uint64_t wake_ns = 30'000;       // from a futex wake to running
  std::uint64_t poll_ns = 200'000;      // period of the library's helper thread
  std::uint64_t sync_gap_ns = 5'000;   // from a completion to the next launch of a sync loop
  std::uint32_t queue_depth = 1024;     // launches that the driver accepts before it blocks
};

/// The card's time of each tenant, in buckets of 10 ms.
struct Delivered {
  static constexpr std::uint64_t kBucketNs = 10'000'000;
  std::vector<std::vector<std::uint64_t>> buckets;  // [tenant][bucket]

  /// Percent of the card in each window of `window_ns` within [from, to).
  [[nodiscard]] std::vector<double> windows(std::size_t tenant, std::uint64_t window_ns, std::uint64_t from,
                                            std::uint64_t to) const;
};

class World {
 public:
  World(const std::vector<Tenant>& tenants, const Machine& machine, std::uint64_t seed, bool controlled = true);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs until `end_ns` of virtual time.
  void run(std::uint64_t end_ns);
  [[nodiscard]] const Delivered& delivered() const { return delivered_; }
  /// The card's time of each process of the tenant, ns.
  [[nodiscard]] std::vector<std::uint64_t> by_process(std::size_t tenant) const;
  /// From the arrival of each of the tenant's requests to its end, ns, in order.
  [[nodiscard]] const std::vector<std::uint64_t>& latencies(std::size_t tenant) const { return latencies_[tenant]; }
  [[nodiscard]] const lease::Arbiter& arbiter() const { return arbiter_; }

 private:
  struct Slice;
  struct Client;
  void play_card(std::uint64_t until);
  std::uint64_t card_next() const;
  void start(Client& client);
  void attempt(Client& client);
  std::uint64_t duration(const Workload& work);
  void launch(Client& client, const lease::Passage& passage);
  void close(Client& client, const lease::Segment& segment);
  void poll(Client& client);
  void step_arbiter();
  void ring();
  void credit_delivery(std::size_t tenant, std::uint64_t from, std::uint64_t to);

  Machine machine_;
  bool controlled_;
  std::mt19937_64 random_;
  std::uint64_t now_ = 0;
  std::vector<std::unique_ptr<Slice>> slices_;
  std::vector<std::unique_ptr<Client>> clients_;  // the processes of all slices
  lease::Arbiter arbiter_;
  std::uint64_t arbiter_at_ = 0;
  std::uint64_t last_step_ = 0;
  // The card.
  int running_ = -1;               // index of the process that runs
  std::uint64_t slice_left_ = 0;   // rest of its time slice
  std::uint64_t switch_left_ = 0;  // rest of the current context switch
  Delivered delivered_;
  std::vector<std::vector<std::uint64_t>> latencies_;
};

}  // namespace carve::share
