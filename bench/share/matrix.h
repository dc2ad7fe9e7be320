#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "bench/share/world.h"

// The scenarios that shares are judged by, and the judgement.
namespace carve::share {

struct Scenario {
  std::string name;
  std::vector<Tenant> tenants;
  std::vector<double> targets;  // per cent of the card; < 0: not judged
  double most_off_1s = 3.0;     // points, every window of 1 s
  double most_off_10s = 1.5;    // points, every window of 10 s
  /// What a test runner prints for it.
  friend void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }
};

/// Pairs 30/70, 50/50, 10/90 and ten tenants of 10, each with kernels of 25 us, 0.5 ms, 5 ms, a sync loop and a
/// graph loop; `fixed` and `burst` alone; a class above another.
std::vector<Scenario> scenarios();

struct Judgement {
  std::vector<double> mean;   // per tenant, per cent of the card
  double off_1s = 0;          // worst of all judged tenants and windows, points
  double off_10s = 0;
  double off_1s_anywhere = 0;  // the same of windows that begin at every 20 ms, told and not judged
  double busy = 0;            // of the card, per cent
  double jain = 1;            // fairness of the shares in relation to their targets
  [[nodiscard]] bool holds(const Scenario& scenario) const {
    return off_1s <= scenario.most_off_1s && off_10s <= scenario.most_off_10s;
  }
};

/// Plays `seconds` of virtual time, the first two dropped.
Judgement judge(const Scenario& scenario, unsigned seconds, std::uint64_t seed, bool controlled = true);

}  // namespace carve::share
