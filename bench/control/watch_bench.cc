// The CPU time of control for one event of its watch of pods, in microseconds: the stream is cut into lines, the event
// is parsed, the Pod is read. The `--events` pods have their size in a real cluster (objects.cc).
//
//   watch_bench [--events N]
//
// Instruction counts do not depend on the machine's load:
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*phase_read*' watch_bench --events 200
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "bench/control/objects.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/kube/lines.h"
#include "codec/kube/messages.h"

namespace carve::bench {

/// Returns the number of pods read. Not inlined, so that callgrind finds it.
[[gnu::noinline]] std::size_t phase_read(codec::Lines& lines, const std::string& bytes) {
  std::size_t bound = 0;
  if (!lines.add(bytes)) std::abort();
  while (const auto line = lines.next()) {
    const auto event = codec::parse_kube_event(*line);
    if (!event) std::abort();
    const auto pod = codec::parse_cluster_pod(event->object);
    if (!pod) std::abort();
    bound += pod->node.empty() ? 0 : 1;
  }
  return bound;
}

double cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

int run(std::size_t events) {
  codec::Lines lines(8U << 20U);
  double spent = 0;
  std::size_t bytes = 0;
  std::size_t bound = 0;
  for (std::size_t i = 0; i < events; ++i) {
    PodMoment now{.number = i, .node = node_name(i % 100), .annotations = {}};
    const auto line = event("MODIFIED", pod_object(now));
    const double begin = cpu_us();
    bound += phase_read(lines, line);
    spent += cpu_us() - begin;
    bytes += line.size();
  }
  if (bound != events) return 1;
  std::printf("%zu events of %zu bytes each: %.1f us of CPU each\n", events, bytes / events,
              spent / static_cast<double>(events));
  return 0;
}

}  // namespace carve::bench

int main(int argc, char** argv) {
  std::size_t events = 10'000;
  if (argc == 3 && std::strcmp(argv[1], "--events") == 0) events = std::strtoul(argv[2], nullptr, 10);
  return carve::bench::run(events == 0 ? 1 : events);
}
