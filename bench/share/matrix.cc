#include "bench/share/matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace carve::share {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
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

/// The percentage that one such loop reaches when it has the card alone. A sync loop leaves the card idle between a
/// completion and its next launch, and a slice cannot be given time that it does not request.
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
  for (const Kind& kind : shapes) {
    Tenant limited = tenant(30, kind.work);
    limited.terms.ceiling = 60;
    all.push_back({std::string("burst 30 to 60 alone ") + kind.name, {limited}, {std::min(60.0, reach(kind.work))},
                   2.0, 2.0});
  }
  all.push_back({"fixed 30 with burst 30, 0.5ms",
                 {tenant(30, shapes[1].work, abi::ShareClass::kFixed), tenant(30, shapes[1].work)}, {30, 70}});
  return all;
}

std::vector<Scenario> process_scenarios() {
  // The bounds of shares: 3 points of every second up to 5 ms, 5 points of every ten seconds beyond.
  constexpr std::uint64_t kLong = 5'000'000;
  constexpr double kNotJudged = 100;
  std::vector<Scenario> all;
  const Workload steady{500'000};
  for (const std::uint32_t processes : {4U, 16U, 64U}) {
    for (const auto& [length, kernel_ns] : {std::pair{"20us", 20'000U}, {"0.5ms", 500'000U}, {"20ms", 20'000'000U}}) {
      for (const bool sync : {false, true}) {
        Workload work{kernel_ns, sync};
        work.processes = processes;
        const std::string name = std::to_string(processes) + " x " + (sync ? "sync " : "") + length + ", alone";
        all.push_back({name, {tenant(30, work)}, {-1}, kNotJudged, kNotJudged});
        all.back().least_process = 90;
      }
    }
  }
  const auto add = [&](const std::string& name, const Workload& work, abi::ShareClass share, bool alone) {
    const bool long_kernels = work.kernel_ns * work.graph_of > kLong;
    Scenario scenario;
    scenario.name = std::to_string(work.processes) + " x " + name;
    scenario.tenants = {tenant(30, work, share)};
    scenario.targets = {-1.0};
    if (share == abi::ShareClass::kFixed) scenario.most_capped_2s = long_kernels ? 33 : 32;
    if (!alone) {
      scenario.tenants.push_back(tenant(70, steady));
      scenario.targets.push_back(70);
    }
    scenario.most_off_1s = long_kernels ? kNotJudged : 3;
    scenario.most_off_10s = long_kernels ? 5 : 3;
    all.push_back(scenario);
  };
  for (const std::uint32_t processes : {1U, 2U, 4U, 8U, 16U, 64U}) {
    for (const auto& [length, kernel_ns] :
         {std::pair{"20us", 20'000U}, {"0.5ms", 500'000U}, {"5ms", 5'000'000U}, {"20ms", 20'000'000U}}) {
      Workload work{kernel_ns};
      work.processes = processes;
      add(length, work, abi::ShareClass::kBurst, false);
      work.sync = true;
      add(std::string("sync ") + length, work, abi::ShareClass::kBurst, false);
      add(std::string("sync ") + length + ", fixed", work, abi::ShareClass::kFixed, false);
      work.sync = false;
      add(std::string(length) + ", fixed", work, abi::ShareClass::kFixed, false);
      add(std::string(length) + ", fixed, alone", work, abi::ShareClass::kFixed, true);
    }
    Workload graphs{50'000};
    graphs.graph_of = 40;
    graphs.processes = processes;
    add("graph 40x50us", graphs, abi::ShareClass::kBurst, false);
  }
  return all;
}

std::vector<Scenario> unruly_scenarios() {
  constexpr std::uint64_t kLater = 5 * kSecond;
  const Workload steady{500'000};
  std::vector<Scenario> all;
  const auto many = [](std::uint32_t processes, std::uint64_t kernel_ns) {
    Workload work{kernel_ns};
    work.processes = processes;
    return work;
  };
  const auto with_neighbour = [&](const std::string& name, const Workload& one, const Workload& neighbour) {
    all.push_back({name, {tenant(30, one), tenant(70, neighbour)}, {-1, 70}, 100, 5});
    all.back().only_short = true;
    return all.size() - 1;
  };
  for (const auto& [text, kernel_ns] : {std::pair{"0.5ms", 500'000U}, {"5ms", 5'000'000U}, {"20ms", 20'000'000U}}) {
    Workload late = many(16, kernel_ns);
    late.start_ns = kLater;
    all[with_neighbour(std::string("16 x ") + text + " start later", late, steady)].from_ns = kLater;
    late = steady;
    late.start_ns = kLater;
    const std::size_t later = with_neighbour(std::string("starts later than 16 x ") + text, many(16, kernel_ns), late);
    all[later].from_ns = kLater;
    if (kernel_ns < 20'000'000) continue;
    // Alone, each process has its part of the work in flight, which has grown to seconds. It is repaid.
    all[later].most_off_10s = 100;
    all[later].most_short = 5;
  }
  for (const auto& [text, kernel_ns] : {std::pair{"0.5ms", 500'000U}, {"5ms", 5'000'000U}, {"20ms", 20'000'000U}}) {
    Workload old = many(16, kernel_ns);
    old.shares_credit = false;
    // Only the arbiter acts: it charges what such processes have in flight and cannot keep it small.
    all[with_neighbour(std::string("16 x ") + text + ", old library", old, steady)].most_off_10s = 8;
  }
  Workload changes{20'000};
  changes.later_kernel_ns = 1'000'000;
  changes.change_every_ns = kSecond;
  // Work that was in flight when the length changed continues. It is repaid, so the sum is the promised share.
  all[with_neighbour("20us, then 1ms, under one key", changes, steady)].most_short = 4;
  changes.later_kernel_ns = 20'000'000;
  changes.change_every_ns = 5 * kSecond;
  const std::size_t longer = with_neighbour("20us, then 20ms, under one key", changes, steady);
  all[longer].most_short = 5;
  all[longer].most_off_10s = 100;
  Workload unmeasured{500'000};
  unmeasured.measured = false;
  with_neighbour("0.5ms without end markers", unmeasured, steady);
  unmeasured.kernel_ns = 20'000'000;
  with_neighbour("20ms without end markers", unmeasured, steady);
  unmeasured.processes = 4;
  with_neighbour("4 x 20ms without end markers", unmeasured, steady);
  Workload hangs{500'000};
  hangs.hangs = true;
  Workload online{500'000};
  online.start_ns = kSecond;
  Scenario rescued{"eight offline that hang", {}, {}, 100, 5};
  rescued.tenants.push_back(tenant(70, online, abi::ShareClass::kBurst, abi::PriorityClass::kOnline));
  rescued.targets.push_back(100);
  for (int i = 0; i < 8; ++i) {
    rescued.tenants.push_back(tenant(0, hangs, abi::ShareClass::kBestEffort, abi::PriorityClass::kOffline));
    rescued.targets.push_back(-1);
  }
  all.push_back(rescued);
  with_neighbour("one that hangs", hangs, steady);
  return all;
}

Waiting waiting_loop(std::uint64_t kernel_ns, bool neighbour, bool controlled, unsigned seconds, std::uint64_t seed) {
  Machine machine;
  machine.sync_gap_ns = 60'000;  // of a real program, from a completion to its next launch: wake up, return, launch
  std::vector<Tenant> tenants = {tenant(30, {kernel_ns, true})};
  if (neighbour) tenants.push_back(tenant(70, {500'000}));
  World world(tenants, machine, seed, controlled);
  const std::uint64_t end = seconds * kSecond;
  world.run(end);
  const auto mean = [&](std::size_t i) { return world.delivered().windows(i, end - kSecond, kSecond, end).at(0); };
  Waiting result;
  result.delivered = mean(0);
  result.neighbour = neighbour ? mean(1) : 0;
  result.round_us = static_cast<double>(kernel_ns) / 1e3 * 100 / result.delivered;
  result.idle = 100 - result.delivered - result.neighbour;
  return result;
}

Service online_service(std::uint64_t offline_kernel_ns, bool controlled, unsigned seconds, std::uint64_t seed) {
  Workload requests{1'000'000};
  requests.request_of = 20;
  requests.period_ns = 100'000'000;
  std::vector<Tenant> tenants = {
      {"online", {0, abi::ShareClass::kBestEffort, abi::PriorityClass::kOnline}, requests}};
  if (offline_kernel_ns != 0)
    tenants.push_back(
        {"offline", {0, abi::ShareClass::kBestEffort, abi::PriorityClass::kOffline}, {offline_kernel_ns}});
  World world(tenants, Machine{}, seed, controlled);
  const std::uint64_t end = seconds * kSecond;
  world.run(end);
  auto latencies = world.latencies(0);
  std::sort(latencies.begin(), latencies.end());
  const auto at = [&](double part) {
    return static_cast<double>(latencies[static_cast<std::size_t>(part * static_cast<double>(latencies.size() - 1))]) /
           1e6;
  };
  Service result{at(0.5), at(0.99), 0, 0};
  if (offline_kernel_ns == 0) return result;
  result.offline = world.delivered().windows(1, end - kSecond, kSecond, end).at(0);
  // Buckets in which neither slice ran: after the end of a request, before the offline slice goes on.
  const auto& online = world.delivered().buckets[0];
  const auto& offline = world.delivered().buckets[1];
  double pause = 0;
  for (std::size_t i = 0; i < std::min(online.size(), offline.size()); ++i) {
    const std::uint64_t idle = Delivered::kBucketNs - std::min(Delivered::kBucketNs, online[i] + offline[i]);
    pause = offline[i] > 0 ? 0 : pause + static_cast<double>(idle) / 1e6;
    result.longest_pause_ms = std::max(result.longest_pause_ms, pause);
  }
  return result;
}

Judgement judge(const Scenario& scenario, unsigned seconds, std::uint64_t seed, bool controlled) {
  World world(scenario.tenants, Machine{}, seed, controlled);
  const std::uint64_t end = seconds * kSecond;
  world.run(end);
  Judgement result;
  double sum = 0;
  double squares = 0;
  double judged = 0;
  for (std::size_t i = 0; i < scenario.tenants.size(); ++i) {
    const double mean = world.delivered().windows(i, end - scenario.from_ns, scenario.from_ns, end).at(0);
    result.mean.push_back(mean);
    result.busy += mean;
    if (scenario.targets[i] < 0) continue;
    ++judged;
    const auto off = [&scenario, i](double got) {
      return scenario.only_short ? scenario.targets[i] - got : std::abs(got - scenario.targets[i]);
    };
    result.short_by = std::max(result.short_by, scenario.targets[i] - mean);
    sum += mean / scenario.targets[i];
    squares += mean / scenario.targets[i] * mean / scenario.targets[i];
    for (const double got : world.delivered().windows(i, kSecond, scenario.from_ns, end)) {
      result.off_1s = std::max(result.off_1s, off(got));
    }
    for (std::uint64_t shift = 0; shift < kSecond; shift += kShift) {
      for (const double got : world.delivered().windows(i, kSecond, scenario.from_ns + shift, end)) {
        result.off_1s_anywhere = std::max(result.off_1s_anywhere, off(got));
      }
    }
    for (const double got : world.delivered().windows(i, 10 * kSecond, scenario.from_ns, end)) {
      result.off_10s = std::max(result.off_10s, off(got));
    }
  }
  for (std::uint64_t shift = 0; shift < 2 * kSecond; shift += kShift) {
    for (const double got : world.delivered().windows(0, 2 * kSecond, scenario.from_ns + shift, end)) {
      result.most_2s = std::max(result.most_2s, got);
    }
  }
  const std::vector<std::uint64_t> processes = world.by_process(0);
  const double all = std::accumulate(processes.begin(), processes.end(), 0.0);
  const auto least = static_cast<double>(*std::min_element(processes.begin(), processes.end()));
  result.least_process = all > 0 ? 100.0 * least * static_cast<double>(processes.size()) / all : 0;
  if (judged > 0) result.jain = sum * sum / (judged * squares);
  return result;
}

}  // namespace carve::share
