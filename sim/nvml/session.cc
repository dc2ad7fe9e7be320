#include "sim/nvml/session.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "sim/protocol/client.h"

namespace carve::sim::nvml {
namespace {

/// The driver's own rule for visible cards: the device node can be opened and is a device.
bool can_see(std::uint32_t minor) {
  char path[32];
  std::snprintf(path, sizeof path, "/dev/nvidia%u", minor);
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st = {};
  const bool device = ::fstat(fd, &st) == 0 && S_ISCHR(st.st_mode);
  ::close(fd);
  return device;
}

Return as_return(Status status) {
  switch (status) {
    case Status::kOk: return kSuccess;
    case Status::kGone: return kDriverNotLoaded;
    case Status::kNoSuchCard:
    case Status::kCardLost: return kGpuIsLost;
    default: return kUnknown;
  }
}

std::uint64_t monotonic_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ULL +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void append(const std::vector<SampleRecord>& records, std::vector<UsageSample>* out) {
  for (const SampleRecord& r : records) {
    out->push_back({r.end_us, static_cast<std::uint32_t>(r.pid), std::min(r.gpu_percent, 100U),
                    std::min(r.memory_percent, 100U)});
  }
}

}  // namespace

struct Session::Link {
  Connection connection;
};

Session::~Session() = default;

Return Session::open(std::unique_ptr<Session>* out) {
  std::unique_ptr<Session> session(new Session);
  session->link_ = std::make_unique<Link>();
  Connection& connection = session->link_->connection;
  if (Return r = as_return(connection.open(ClientKind::kQuery)); r != kSuccess) return r;
  const MachineRecord& record = connection.machine();
  const std::string profile(record.profile, ::strnlen(record.profile, sizeof record.profile));
  const std::string instance(record.instance, ::strnlen(record.instance, sizeof record.instance));
  std::string error;
  if (!parse_machine(profile, instance, &session->machine_, &error)) return kUnknown;
  for (std::uint32_t minor = 0; minor < session->machine_.count; ++minor) {
    if (!can_see(minor)) continue;
    session->cards_.push_back({static_cast<std::uint32_t>(session->cards_.size()), minor});
  }
  *out = std::move(session);
  return kSuccess;
}

Return Session::state(const Card& card, std::uint32_t* recovery) {
  std::uint64_t state = 0;
  const Return r = as_return(link_->connection.call(Op::kCardState, card.minor, 0, 0, &state));
  if (recovery != nullptr) *recovery = static_cast<std::uint32_t>(state & kRecoveryMask);
  return r;
}

Return Session::memory(const Card& card, MemoryUse* out) {
  std::vector<CardStatusRecord> status;
  Return r = as_return(link_->connection.list(Op::kCardStatus, card.minor, 0, 0, &status));
  if (r != kSuccess) return r;
  if (status.size() != 1) return kUnknown;
  *out = {status[0].total_bytes, status[0].reserved_bytes, status[0].used_bytes};
  return kSuccess;
}

Return Session::processes(const Card& card, std::vector<ProcessUse>* out) {
  std::vector<ProcessRecord> records;
  Return r = as_return(link_->connection.list(Op::kCardProcesses, card.minor, 0, 0, &records));
  if (r != kSuccess) return r;
  for (const ProcessRecord& p : records) {
    if (p.contexts == 0) continue;  // connected, but without a context on the card
    out->push_back({static_cast<std::uint32_t>(p.pid), p.used_bytes});
  }
  return kSuccess;
}

Return Session::usage(const Card& card, std::uint64_t since_us, std::vector<UsageSample>* out) {
  std::vector<SampleRecord> of_card;
  std::vector<SampleRecord> of_processes;
  Return r = as_return(link_->connection.list(Op::kCardSamples, card.minor, since_us, 0, &of_card));
  if (r != kSuccess) return r;
  r = as_return(link_->connection.list(Op::kProcessSamples, card.minor, since_us, 0, &of_processes));
  if (r != kSuccess) return r;
  // A period that ended between the two requests is left for the next call. Without the card's sample, its processes
  // would enter the mean as if the period had no length.
  const std::uint64_t newest = of_card.empty() ? 0 : of_card.back().end_us;
  std::erase_if(of_processes, [&](const SampleRecord& one) { return one.end_us > newest; });
  append(of_card, out);
  append(of_processes, out);
  std::stable_sort(out->begin(), out->end(), [](const UsageSample& a, const UsageSample& b) {
    return a.time_us < b.time_us;
  });
  return kSuccess;
}

Return Session::lifetime(const Card& card, std::uint64_t* up_ns, std::uint64_t* busy_ns) {
  std::vector<CardStatusRecord> status;
  Return r = as_return(link_->connection.list(Op::kCardStatus, card.minor, 0, 0, &status));
  if (r != kSuccess) return r;
  if (status.size() != 1) return kUnknown;
  const std::uint64_t now = monotonic_ns(), boot = link_->connection.machine().boot_ns;
  *up_ns = now > boot ? now - boot : 0;
  *busy_ns = std::min(status[0].busy_ns, *up_ns);
  return kSuccess;
}

}  // namespace carve::sim::nvml
