#include "cmd/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "adapter/process/text_file.h"
#include "cmd/options.h"

namespace carve::cmd {
namespace {

using Kind = codec::MetricsText::Kind;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

/// The second field of /proc/self/statm, in bytes; 0 if it cannot be read.
std::uint64_t resident_bytes() {
  const auto statm = process::read_text("/proc/self/statm");
  const auto blank = statm ? statm->find(' ') : std::string::npos;
  if (blank == std::string::npos) return 0;
  return std::strtoull(statm->c_str() + blank, nullptr, 10) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void write_process(codec::MetricsText* text) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  text->family("process_cpu_seconds_total", Kind::kCounter, "CPU time of this process.");
  text->sample(seconds(used.ru_utime) + seconds(used.ru_stime));
  text->family("process_resident_memory_bytes", Kind::kGauge, "Resident memory of this process.");
  text->sample(resident_bytes());
  text->family("carve_build_info", Kind::kGauge, "1; the labels name this build.");
  text->sample(std::uint64_t{1}, {{"version", kVersion}, {"commit", kCommit}});
}

}  // namespace carve::cmd
