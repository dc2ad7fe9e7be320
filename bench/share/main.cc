// carve-bench-share [--seconds N] [--seed N]: the table of compute shares, in exact virtual time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "bench/share/matrix.h"

namespace {

/// Prints one row per scenario. Returns the number of scenarios beyond their bounds.
int table(const char* title, const std::vector<carve::share::Scenario>& scenarios, unsigned seconds,
          std::uint64_t seed) {
  int missed = 0;
  std::printf("\n%s\n%-32s %22s %8s %8s %8s %7s %7s %7s %6s\n", title, "scenario", "delivered %", "off 1s", "(any)",
              "off 10s", "most 2s", "busy", "Jain", "least");
  for (const auto& scenario : scenarios) {
    const auto got = carve::share::judge(scenario, seconds, seed);
    std::string shares;
    for (std::size_t i = 0; i < got.mean.size() && i < 3; ++i) {
      char text[32];
      std::snprintf(text, sizeof text, "%s%.1f", i ? " / " : "", got.mean[i]);
      shares += text;
    }
    if (got.mean.size() > 3) shares += " …";
    const bool holds = got.holds(scenario);
    missed += !holds;
    std::printf("%-32s %22s %8.2f %8.2f %8.2f %7.1f %7.1f %7.4f %6.0f  %s\n", scenario.name.c_str(), shares.c_str(),
                got.off_1s, got.off_1s_anywhere, got.off_10s, got.most_2s, got.busy, got.jain, got.least_process,
                holds ? "" : "MISSED");
  }
  return missed;
}

/// A loop that waits for each kernel: its result alone, with leases, and with a hardware that fills its pauses.
void waiting_table(unsigned seconds, std::uint64_t seed) {
  std::printf("\na slice of 30 that waits for each kernel, 60 us from a completion to its next launch\n");
  std::printf("%-10s %-28s %10s %10s %10s %10s\n", "kernel", "", "loop %", "round us", "other %", "idle %");
  for (const std::uint64_t kernel_ns : {11'000U, 50'000U, 200'000U, 1'000'000U}) {
    const auto row = [&](const char* what, bool neighbour, bool controlled) {
      const carve::share::Waiting got = carve::share::waiting_loop(kernel_ns, neighbour, controlled, seconds, seed);
      std::printf("%7.0f us %-28s %10.1f %10.0f %10.1f %10.1f\n", static_cast<double>(kernel_ns) / 1e3, what,
                  got.delivered, got.round_us, got.neighbour, got.idle);
    };
    row("alone", false, true);
    row("leases, with one of 70", true, true);
    row("no leases, pauses are filled", true, false);
  }
}

/// Requests of an online service, alone and on a card that offline work fills.
void service_table(unsigned seconds, std::uint64_t seed) {
  std::printf("\nan online service: a request of 20 kernels of 1 ms every 100 ms; offline kernels fill the card\n");
  std::printf("%-10s %-12s %10s %10s %10s %12s\n", "offline", "", "p50 ms", "p99 ms", "offline %", "pause ms");
  const auto row = [&](const char* kernel, const char* what, std::uint64_t kernel_ns, bool controlled) {
    const carve::share::Service got = carve::share::online_service(kernel_ns, controlled, seconds, seed);
    std::printf("%-10s %-12s %10.2f %10.2f %10.1f %12.1f\n", kernel, what, got.p50_ms, got.p99_ms, got.offline,
                got.longest_pause_ms);
  };
  row("-", "alone", 0, true);
  for (const auto& [kernel, ns] : {std::pair{"0.1 ms", 100'000U}, {"0.5 ms", 500'000U}, {"5 ms", 5'000'000U}}) {
    row(kernel, "leases", ns, true);
    row(kernel, "no leases", ns, false);
  }
}

}  // namespace

int main(int argc, char** argv) {
  unsigned seconds = 32;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = static_cast<unsigned>(std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::printf("simulated in virtual time: %u s each, first 2 s dropped, seed %llu\n", seconds,
              static_cast<unsigned long long>(seed));
  std::printf("targets of sync loops: the share times the result of such a loop alone (99.0 %%)\n");
  std::printf("off 1s, off 10s: worst window, points; (any): windows that begin every 20 ms, not judged\n");
  std::printf("most 2s: the most that the first slice gets in any 2 s\n");
  std::printf("least: the least served process of the first slice, percent of their mean\n");
  const int missed = table("slices", carve::share::scenarios(), seconds, seed) +
                     table("processes in a slice of 30, with a neighbour of 70 with 0.5 ms kernels",
                           carve::share::process_scenarios(), seconds, seed) +
                     table("unruly programs", carve::share::unruly_scenarios(), seconds, seed);
  waiting_table(seconds, seed);
  service_table(seconds, seed);
  std::printf("%d scenarios beyond their bounds\n", missed);
  return missed == 0 ? 0 : 1;
}
