#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "bench/share/world.h"

// The scenarios by which shares are judged, and the judgement.
namespace carve::share {

struct Scenario {
  std::string name;
  std::vector<Tenant> tenants;
  std::vector<double> targets;  // percent of the card; < 0: not judged
  double most_off_1s = 3.0;     // points, every window of 1 s
  double most_off_10s = 1.5;    // points, every window of 10 s
  std::uint64_t from_ns = 2'000'000'000;  // earlier windows are not judged
  bool only_short = false;      // more than the target is allowed: the others cannot use their share
  double least_process = 0;     // of the first tenant's processes: the least served one, percent of their mean
  double most_short = 100;      // points, over all judged time together
  double most_capped_2s = 100;  // percent of the card: the first tenant's cap in every 2 s; windows begin every 20 ms
  /// The name that a test runner prints.
  friend void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }
};

/// Pairs 30/70, 50/50, 10/90 and ten tenants of 10, each with kernels of 25 us, 0.5 ms, 5 ms, a sync loop and a
/// graph loop; `fixed` and `burst` alone; a class with precedence over another.
std::vector<Scenario> scenarios();

/// A slice of 30 with 1 to 64 processes and a neighbour of 70, of which the share is judged: kernels of 20 us to 20 ms,
/// asynchronous, waited for and in graphs; the same with a cap, with a neighbour and alone.
std::vector<Scenario> process_scenarios();

/// Programs that distort the accounts, intentionally or not: new processes with much work in flight, host functions
/// that do not return, work with a length that does not follow from its key, work that cannot be measured, libraries
/// that do not share credit.
std::vector<Scenario> unruly_scenarios();

/// A slice of 30 that waits for each of its kernels, and a neighbour of 70 that saturates the card.
struct Waiting {
  double delivered = 0;     // to the waiting slice, percent of the card
  double round_us = 0;      // from one of its launches to the next
  double neighbour = 0;     // percent of the card
  double idle = 0;          // of the card, including switches between processes
};
/// Measures the use of the card. `neighbour`: false for the loop alone. `controlled`: false for the behaviour of the
/// hardware alone, which lets the neighbour's work fill every pause.
///   cost  about 10 ms of real time per second of virtual time
Waiting waiting_loop(std::uint64_t kernel_ns, bool neighbour, bool controlled, unsigned seconds, std::uint64_t seed);

/// An `online` service that answers requests beside `offline` work that fills the card, as qGPU's classes mean it.
struct Service {
  double p50_ms = 0;           // from the arrival of a request to its end
  double p99_ms = 0;
  double offline = 0;          // to the offline work, percent of the card
  double longest_pause_ms = 0;  // from the end of a request to the next work of the offline slice
};
/// A request of 20 kernels of 1 ms every 100 ms. `offline_kernel_ns` 0: alone on the card.
Service online_service(std::uint64_t offline_kernel_ns, bool controlled, unsigned seconds, std::uint64_t seed);

struct Judgement {
  std::vector<double> mean;   // per tenant, percent of the card
  double off_1s = 0;          // worst of all judged tenants and windows, points
  double off_10s = 0;
  double short_by = 0;        // by how much a judged tenant's mean is below its target, points
  double most_2s = 0;          // the first tenant's most in any 2 s, percent of the card
  double off_1s_anywhere = 0;  // the same for windows that begin every 20 ms; reported, not judged
  double busy = 0;            // percent of the card
  double least_process = 0;   // the least served process of the first tenant, percent of their mean
  double jain = 1;            // fairness of the shares in relation to their targets
  [[nodiscard]] bool holds(const Scenario& scenario) const {
    return off_1s <= scenario.most_off_1s && off_10s <= scenario.most_off_10s && short_by <= scenario.most_short &&
           most_2s <= scenario.most_capped_2s && least_process >= scenario.least_process;
  }
};

/// Runs `seconds` of virtual time.
Judgement judge(const Scenario& scenario, unsigned seconds, std::uint64_t seed, bool controlled = true);

}  // namespace carve::share
