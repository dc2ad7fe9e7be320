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

// The exact bench of compute shares: clients, arbiter and one card in virtual time, by discrete events. Clients
// go through lease::Gate, the arbiter is lease::Arbiter, both the files that run in production; the card is a
// model: round-robin time slices between contexts, a switch cost, first in first out within a context.
namespace carve::share {

/// What one tenant does.
struct Workload {
  std::uint64_t kernel_ns = 500'000;
  bool sync = false;           // waits for each kernel before the next launch
  std::uint32_t graph_of = 1;  // kernels per launch
  std::uint64_t start_ns = 0;
  double spread = 0.25;        // log-normal spread of durations
};

struct Tenant {
  std::string name;
  lease::Terms terms;
  Workload work;
};

/// The card and the machine around it. Sources: measured-time lease note (spec of the isolation design), 2.8.
struct Machine {
  std::uint64_t slice_ns = 1'024'000;
  std::uint64_t switch_ns = 100'000;
  std::uint64_t launch_cpu_ns = 4'000;
  std::uint64_t wake_ns = 30'000;       // from a futex wake to running
  std::uint64_t poll_ns = 200'000;      // the library's helper thread
  std::uint64_t sync_gap_ns = 5'000;   // from a completion to the next launch of a sync loop
  std::uint32_t queue_depth = 1024;     // launches that the driver takes before it blocks
};

/// Time the card gave to each tenant, in buckets of 10 ms.
struct Delivered {
  static constexpr std::uint64_t kBucketNs = 10'000'000;
  std::vector<std::vector<std::uint64_t>> buckets;  // [tenant][bucket]

  /// Per cent of the card in each window of `window_ns` within [from, to).
  [[nodiscard]] std::vector<double> windows(std::size_t tenant, std::uint64_t window_ns, std::uint64_t from,
                                            std::uint64_t to) const;
};

class World {
 public:
  World(const std::vector<Tenant>& tenants, const Machine& machine, std::uint64_t seed, bool controlled = true);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Plays until `end_ns` of virtual time.
  void run(std::uint64_t end_ns);
  [[nodiscard]] const Delivered& delivered() const { return delivered_; }

 private:
  struct Client;
  void play_card(std::uint64_t until);
  std::uint64_t card_next() const;
  void attempt(Client& client);
  void launch(Client& client, const lease::Passage& passage);
  void poll(Client& client);
  void step_arbiter();
  void ring();
  void credit_delivery(std::size_t tenant, std::uint64_t from, std::uint64_t to);

  Machine machine_;
  bool controlled_;
  std::mt19937_64 random_;
  std::uint64_t now_ = 0;
  std::vector<std::unique_ptr<Client>> clients_;
  lease::Arbiter arbiter_;
  std::uint64_t arbiter_at_ = 0;
  std::uint64_t last_step_ = 0;
  // The card.
  int running_ = -1;               // whose context is on it
  std::uint64_t slice_left_ = 0;   // of its time slice
  std::uint64_t switch_left_ = 0;  // of a context switch under way
  Delivered delivered_;
};

}  // namespace carve::share
