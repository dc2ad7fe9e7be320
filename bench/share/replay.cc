// carve-trace-replay FILE [--alter STEP]: feeds a recording of an arbiter to the same lease state machine and reports
// whether it makes the same decisions. Exit code 0: no decision differs, 1: some differ, 2: not a trace, or a truncated
// one (the figures are those of its complete records).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "arbiter/trace.h"

int main(int argc, char** argv) {
  const bool alters = argc == 4 && std::strcmp(argv[2], "--alter") == 0;
  char* end = nullptr;
  const long long step = alters ? std::strtoll(argv[3], &end, 10) : -1;
  if ((argc != 2 && !alters) || (alters && (*argv[3] == 0 || *end != 0 || step < 0))) {
    std::fprintf(stderr, "usage: carve-trace-replay FILE [--alter STEP]\n"
                         "  --alter STEP  move this step by 3 ms (the first is 0), so that decisions must differ\n");
    return 2;
  }
  const auto again = carve::arbiter::replay(argv[1], step);
  if (!again) {
    std::fprintf(stderr, "carve-trace-replay: %s\n", again.error().what.c_str());
    return 2;
  }
  std::printf("%llu steps, up to %d slices, %llu decisions, %llu of them changed a grant; %llu differ\n",
              static_cast<unsigned long long>(again->steps), again->most_slices,
              static_cast<unsigned long long>(again->decisions), static_cast<unsigned long long>(again->changes),
              static_cast<unsigned long long>(again->differ));
  if (again->truncated_at != 0) {
    std::fprintf(stderr, "carve-trace-replay: %s: truncated: a record is incomplete at byte %llu\n", argv[1],
                 static_cast<unsigned long long>(again->truncated_at));
    return 2;
  }
  return again->differ == 0 ? 0 : 1;
}
