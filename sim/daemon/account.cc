#include "sim/daemon/account.h"

#include <algorithm>

namespace carve::sim {

void History::add(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end || closed_) return;
  if (buckets_.empty()) buckets_.resize(kBuckets);
  while (begin < end) {
    const std::uint64_t number = begin / kBucketNs;
    const std::uint64_t part = std::min(end, (number + 1) * kBucketNs) - begin;
    Bucket& bucket = buckets_[number % kBuckets];
    if (bucket.number != static_cast<std::uint32_t>(number))
      bucket = {static_cast<std::uint32_t>(number), 0};
    bucket.ns += static_cast<std::uint32_t>(part);
    begin += part;
  }
}

std::uint64_t History::sum(std::uint64_t begin, std::uint64_t end) const {
  if (buckets_.empty()) return 0;
  std::uint64_t total = 0;
  if (closed_) {
    for (const Bucket& bucket : buckets_)
      if (bucket.number >= begin / kBucketNs && bucket.number < end / kBucketNs) total += bucket.ns;
    return total;
  }
  for (std::uint64_t number = begin / kBucketNs; number < end / kBucketNs; ++number) {
    const Bucket& bucket = buckets_[number % kBuckets];
    if (bucket.number == static_cast<std::uint32_t>(number)) total += bucket.ns;
  }
  return total;
}

void History::close() {
  std::erase_if(buckets_, [](const Bucket& bucket) { return bucket.ns == 0; });
  buckets_.shrink_to_fit();
  closed_ = true;
}

std::uint64_t Account::physical_bytes() const {
  return granule_bytes + round_up(small_bytes, kGranule) + round_up(module_bytes, kGranule);
}

}  // namespace carve::sim
