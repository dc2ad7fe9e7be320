#pragma once

#include <cstdint>
#include <vector>

#include "sim/daemon/kernel.h"

// Answers to requests: the kernel side's state as the records of protocol/messages.h. All functions need the kernel's
// lock and a timeline that is advanced to `now`.
namespace carve::sim {

CardStatusRecord card_status(const Kernel& kernel, std::uint32_t card, std::uint64_t now) REQUIRES(kernel.mutex());
std::vector<ProcessRecord> card_processes(const Kernel& kernel, std::uint32_t card) REQUIRES(kernel.mutex());

/// Utilisation as the real library samples it: whole percent, one value per 1/6 s, at most 20 s back.
std::vector<SampleRecord> card_samples(const Kernel& kernel, std::uint32_t card, std::uint64_t since_us,
                                       std::uint64_t now) REQUIRES(kernel.mutex());
std::vector<SampleRecord> process_samples(const Kernel& kernel, std::uint32_t card, std::uint64_t since_us,
                                          std::uint64_t now) REQUIRES(kernel.mutex());

std::vector<AccountRecord> account_records(const Kernel& kernel) REQUIRES(kernel.mutex());
std::vector<GroupRecord> group_records(const Kernel& kernel) REQUIRES(kernel.mutex());
std::vector<CardTruthRecord> card_records(const Kernel& kernel) REQUIRES(kernel.mutex());
/// The complete windows of `window_ms` that ended by `now` and began at or after `since_ns`.
std::vector<WindowRecord> window_records(const Kernel& kernel, std::uint64_t window_ms, std::uint64_t since_ns,
                                         std::uint64_t now) REQUIRES(kernel.mutex());

}  // namespace carve::sim
