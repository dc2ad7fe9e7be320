#include "bench/share/matrix.h"

#include <cmath>

namespace carve::share {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kDropped = 2 * kSecond;
constexpr std::uint64_t kShift = 20'000'000;

struct Kind {
  const char* name;
  Workload work;
};

std::vector<Kind> kinds() {
  return {{"25us", {25'000}},
          {"0.5ms", {500'000}},
          {"5ms", {5'000'000}},
          {"sync 0.5ms", {500'000, true}},
          {"graph 40x50us", {50'000, false, 40}}};
}

Tenant tenant(std::uint32_t compute, const Workload& work, abi::ShareClass share = abi::ShareClass::kBurst,
              abi::PriorityClass priority = abi::PriorityClass::kStandard) {
  return {std::to_string(compute), {compute, share, priority}, work};
}

/// What one such loop reaches when it has the card for itself, per cent: a sync loop leaves the card idle between
/// a completion and its next launch, and nobody can be given time that he does not ask for.
double reach(const Workload& work) {
  if (!work.sync) return 100.0;
  const auto kernel = static_cast<double>(work.kernel_ns);
  return 100.0 * kernel / (kernel + static_cast<double>(Machine{}.sync_gap_ns));
}

double target(std::uint32_t compute, const Workload& work) { return compute * reach(work) / 100.0; }

}  // namespace

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  const auto shapes = kinds();
  for (const auto& [low, high] : {std::pair{30U, 70U}, {50U, 50U}, {10U, 90U}}) {
    for (const Kind& kind : shapes) {
      all.push_back({std::to_string(low) + "/" + std::to_string(high) + " " + kind.name,
                     {tenant(low, kind.work), tenant(high, kind.work)},
                     {target(low, kind.work), target(high, kind.work)}});
    }
  }
  all.push_back({"30/70 5ms against 25us", {tenant(30, shapes[2].work), tenant(70, shapes[0].work)}, {30, 70}});
  all.push_back({"50/50 graph against sync",
                 {tenant(50, shapes[4].work), tenant(50, shapes[3].work)},
                 {50, target(50, shapes[3].work)}});
  for (const Kind& kind : shapes) {
    all.push_back({std::string("ten of 10 ") + kind.name, std::vector<Tenant>(10, tenant(10, kind.work)),
                   std::vector<double>(10, target(10, kind.work))});
  }
  for (const Kind& kind : shapes) {
    all.push_back({std::string("fixed 30 alone ") + kind.name, {tenant(30, kind.work, abi::ShareClass::kFixed)},
                   {30}, 1.5, 1.5});
  }
  for (const Kind& kind : shapes) {
    all.push_back({std::string("burst 30 alone ") + kind.name, {tenant(30, kind.work)}, {reach(kind.work)}, 2.0, 2.0});
  }
  all.push_back({"fixed 30 beside burst 30, 0.5ms",
                 {tenant(30, shapes[1].work, abi::ShareClass::kFixed), tenant(30, shapes[1].work)}, {30, 70}});
  return all;
}

Judgement judge(const Scenario& scenario, unsigned seconds, std::uint64_t seed, bool controlled) {
  World world(scenario.tenants, Machine{}, seed, controlled);
  const std::uint64_t end = seconds * kSecond;
  world.run(end);
  Judgement result;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < scenario.tenants.size(); ++i) {
    const double mean = world.delivered().windows(i, end - kDropped, kDropped, end).at(0);
    result.mean.push_back(mean);
    result.busy += mean;
    if (scenario.targets[i] < 0) continue;
    sum += mean / scenario.targets[i];
    squares += mean / scenario.targets[i] * mean / scenario.targets[i];
    for (const double got : world.delivered().windows(i, kSecond, kDropped, end)) {
      result.off_1s = std::max(result.off_1s, std::abs(got - scenario.targets[i]));
    }
    for (std::uint64_t shift = 0; shift < kSecond; shift += kShift) {
      for (const double got : world.delivered().windows(i, kSecond, kDropped + shift, end)) {
        result.off_1s_anywhere = std::max(result.off_1s_anywhere, std::abs(got - scenario.targets[i]));
      }
    }
    for (const double got : world.delivered().windows(i, 10 * kSecond, kDropped, end)) {
      result.off_10s = std::max(result.off_10s, std::abs(got - scenario.targets[i]));
    }
  }
  result.jain = sum * sum / (static_cast<double>(scenario.tenants.size()) * squares);
  return result;
}

}  // namespace carve::share
