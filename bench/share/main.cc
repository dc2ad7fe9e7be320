// carve-bench-share [--seconds N] [--seed N]: the table of compute shares, in exact virtual time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "bench/share/matrix.h"

int main(int argc, char** argv) {
  unsigned seconds = 32;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = static_cast<unsigned>(std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::printf("simulated in virtual time: %u s each, first 2 s dropped, seed %llu\n", seconds,
              static_cast<unsigned long long>(seed));
  std::printf("targets of sync loops: the share times what such a loop reaches alone (99.0 %%)\n");
  std::printf("off 1s, off 10s: worst window, points; (any): of windows that begin at every 20 ms, not judged\n");
  std::printf("%-32s %22s %8s %8s %8s %7s %7s  %s\n", "scenario", "delivered %", "off 1s", "(any)", "off 10s", "busy",
              "Jain", "");
  int missed = 0;
  for (const auto& scenario : carve::share::scenarios()) {
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
    std::printf("%-32s %22s %8.2f %8.2f %8.2f %7.1f %7.4f  %s\n", scenario.name.c_str(), shares.c_str(), got.off_1s,
                got.off_1s_anywhere, got.off_10s, got.busy, got.jain, holds ? "" : "MISSED");
  }
  std::printf("%d scenarios beyond their bounds\n", missed);
  return missed == 0 ? 0 : 1;
}
