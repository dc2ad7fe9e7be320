// carve-attack NAME --bytes N --step N --hold-ms N --busy N --processes N: one attack on the library, tried from inside
// a slice.
//
// Prints one line of JSON: the memory that it held and the driver's answer. The runner decides from the simulated
// driver's account whether that means "held" or "caught" (attack_table.py). Exit status 0: the attack was carried out,
// regardless of its result. 3: its precondition is missing here; the reason is printed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include "tests/attacks/attack.h"

namespace {

int usage() {
  std::fprintf(stderr, "usage: carve-attack NAME [--bytes N] [--step N] [--hold-ms N] [--busy PERCENT] "
                       "[--processes N]\nnames:");
  for (const auto& row : carve::attacks::attacks()) std::fprintf(stderr, " %s", row.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  carve::attacks::Options options;
  options.self = argv[0];
  if (argc < 2) return usage();
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--bytes") == 0) options.bytes = std::strtoull(argv[i + 1], nullptr, 10);
    else if (std::strcmp(argv[i], "--step") == 0) options.step = std::strtoull(argv[i + 1], nullptr, 10);
    else if (std::strcmp(argv[i], "--hold-ms") == 0) options.hold_ms = std::strtoull(argv[i + 1], nullptr, 10);
    else if (std::strcmp(argv[i], "--busy") == 0) options.busy = static_cast<unsigned>(std::atoi(argv[i + 1]));
    else if (std::strcmp(argv[i], "--processes") == 0)
      options.processes = static_cast<unsigned>(std::atoi(argv[i + 1]));
    else return usage();
  }
  for (const auto& row : carve::attacks::attacks()) {
    if (std::strcmp(row.name, argv[1]) == 0) return row.run(options);
  }
  return usage();
}
