#include "app/agent/slice_names.h"

#include <fmt/core.h>

#include <random>

namespace carve::agent {
namespace {

constexpr char kDeviceCounter[] = "device";
// The journal reserves names in blocks of this size, long before they are needed. A node has fewer pods.
constexpr std::uint64_t kNamesPerSync = 1024;
constexpr std::uint64_t kNamesLow = 512;

}  // namespace

void SliceNames::restore(const JournalState& journal) {
  std::random_device random;
  const MutexLock lock(mutex_);
  run_number_ = static_cast<std::uint32_t>(random());
  const auto found = journal.counters.find(kDeviceCounter);
  counter_ = found != journal.counters.end() ? found->second : 0;
}

std::string SliceNames::next_local(bool keep) {
  const MutexLock lock(mutex_);
  return fmt::format("{}-{:06x}-{}", keep ? "dev" : "run", run_number_ & 0xFFFFFFU, next_local_++);
}

std::optional<std::string> SliceNames::take() {
  const MutexLock lock(mutex_);
  if (next_device_ >= reserved_until_) return std::nullopt;
  // The random number of this run keeps names unique even if the state folder was lost.
  return fmt::format("s-{:06x}-{}", run_number_ & 0xFFFFFFU, next_device_++);
}

Result<std::string> SliceNames::next_device() {
  for (;;) {
    if (auto name = take()) return *name;
    CARVE_TRY_VOID(set_aside());
  }
}

Result<void> SliceNames::set_aside() {
  std::uint64_t base = 0;
  {
    MutexLock lock(mutex_);
    if (reserved_until_ - next_device_ >= kNamesLow) return {};
    if (reserving_) {
      // Another thread writes the counter. Only a caller without a reserved name waits for it.
      while (reserving_ && next_device_ >= reserved_until_) set_aside_.wait(lock);
      if (next_device_ < reserved_until_) return {};
    }
    reserving_ = true;
    base = counter_;
  }
  const auto written = journal_.append({SetCounter{kDeviceCounter, base + kNamesPerSync}});
  const MutexLock lock(mutex_);
  reserving_ = false;
  set_aside_.notify_all();
  if (!written) return written;
  counter_ = base + kNamesPerSync;
  if (next_device_ >= reserved_until_) next_device_ = base;
  reserved_until_ = counter_;
  return {};
}

std::string SliceNames::unwritten() {
  std::random_device random;
  return fmt::format("s-{:06x}{:06x}-0", random() & 0xFFFFFFU, random() & 0xFFFFFFU);
}

}  // namespace carve::agent
