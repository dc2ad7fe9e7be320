#include "sim/daemon/reports.h"

#include <algorithm>
#include <ctime>

namespace carve::sim {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kSamplesBack = 120;  // 20 s of 1/6 s

std::uint64_t clock_us(clockid_t which) {
  timespec now = {};
  ::clock_gettime(which, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000U + static_cast<std::uint64_t>(now.tv_nsec) / 1000U;
}

/// How far CLOCK_REALTIME is ahead of the kernel's clock. Read once, because two answers must give the same end of a
/// period.
std::uint64_t realtime_ahead_us() {
  static const std::uint64_t ahead = clock_us(CLOCK_REALTIME) - clock_us(CLOCK_MONOTONIC);
  return ahead;
}

/// Sample k covers [begin, end): a sixth of a second, rounded to whole buckets.
std::uint64_t sample_edge(std::uint64_t k) { return k * kSecondNs / 6 / kBucketNs * kBucketNs; }
std::uint64_t last_sample(std::uint64_t now) {
  std::uint64_t k = now / (kSecondNs / 6);
  while (sample_edge(k) > now) --k;
  return k;  // sample k − 1 ended at edge k
}

std::uint32_t percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(100, (part * 100 + whole / 2) / whole));
}

std::uint32_t sample_percent(const History& history, std::uint64_t k) {
  return percent(history.sum(sample_edge(k - 1), sample_edge(k)),
                 sample_edge(k) - sample_edge(k - 1));
}

/// A simulated kernel has no memory traffic. As a rule of thumb it is a third of the engine time.
std::uint32_t memory_percent(std::uint32_t gpu_percent) { return gpu_percent / 3; }

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const std::size_t n = std::min(N - 1, from.size());
  std::copy_n(from.data(), n, to);
  to[n] = '\0';
}

std::uint32_t contexts_on(const Kernel& kernel, std::uint32_t card) REQUIRES(kernel.mutex()) {
  std::uint32_t n = 0;
  for (const auto& [socket, client] : kernel.clients()) n += client->accounts[card]->contexts;
  return n;
}

}  // namespace

CardStatusRecord card_status(const Kernel& kernel, std::uint32_t card, std::uint64_t now) {
  const Engine& engine = kernel.engine(card);
  const std::uint64_t k = last_sample(now);
  CardStatusRecord out = {};
  out.total_bytes = kernel.machine().model->memory_bytes;
  out.reserved_bytes = kernel.machine().model->reserved_bytes;
  out.used_bytes = engine.used_bytes;
  out.now_us = clock_us(CLOCK_REALTIME);
  out.gpu_percent = sample_percent(engine.busy, k);
  out.memory_percent = memory_percent(out.gpu_percent);
  out.copy_percent = sample_percent(engine.copy_busy, k);
  out.contexts = contexts_on(kernel, card);
  out.active = engine.running != nullptr || engine.switching ? 1 : 0;
  out.busy_ns = engine.gpu_ns + engine.switch_ns;
  return out;
}

std::vector<ProcessRecord> card_processes(const Kernel& kernel, std::uint32_t card) {
  std::vector<ProcessRecord> out;
  for (const auto& [socket, client] : kernel.clients()) {
    const Account& account = *client->accounts[card];
    if (account.contexts == 0) continue;
    const std::uint64_t bytes = account.physical_bytes() + account.context_bytes;
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const ProcessRecord& r) { return r.pid == account.pid; });
    if (same != out.end()) {  // two copies of the library in one process
      same->used_bytes += bytes;
      same->contexts += account.contexts;
      continue;
    }
    ProcessRecord record = {};
    record.pid = account.pid;
    record.contexts = account.contexts;
    record.used_bytes = bytes;
    copy_text(record.name, account.name);
    out.push_back(record);
  }
  std::sort(out.begin(), out.end(),
            [](const ProcessRecord& a, const ProcessRecord& b) { return a.pid < b.pid; });
  return out;
}

std::vector<SampleRecord> card_samples(const Kernel& kernel, std::uint32_t card,
                                       std::uint64_t since_us, std::uint64_t now) {
  std::vector<SampleRecord> out;
  const std::uint64_t offset = realtime_ahead_us();
  const std::uint64_t last = last_sample(now);
  for (std::uint64_t k = last > kSamplesBack ? last - kSamplesBack : 1; k <= last; ++k) {
    if (sample_edge(k) <= kernel.boot_ns()) continue;
    const std::uint64_t end_us = sample_edge(k) / 1000 + offset;
    if (end_us <= since_us) continue;
    const std::uint32_t gpu = sample_percent(kernel.engine(card).busy, k);
    out.push_back({end_us, 0, gpu, memory_percent(gpu), 0});
  }
  return out;
}

std::vector<SampleRecord> process_samples(const Kernel& kernel, std::uint32_t card,
                                          std::uint64_t since_us, std::uint64_t now) {
  std::vector<SampleRecord> out;
  const std::uint64_t offset = realtime_ahead_us();
  const std::uint64_t last = last_sample(now);
  for (const auto& [socket, client] : kernel.clients()) {
    const Account& account = *client->accounts[card];
    if (account.contexts == 0) continue;
    for (std::uint64_t k = last > kSamplesBack ? last - kSamplesBack : 1; k <= last; ++k) {
      const std::uint64_t end_us = sample_edge(k) / 1000 + offset;
      if (end_us <= since_us || sample_edge(k) <= account.started_ns) continue;
      const std::uint32_t gpu = sample_percent(account.history, k);
      out.push_back({end_us, account.pid, gpu, memory_percent(gpu), 0});
    }
  }
  return out;
}

std::vector<AccountRecord> account_records(const Kernel& kernel) {
  std::vector<AccountRecord> out;
  for (const auto& account : kernel.accounts()) {
    AccountRecord r = {};
    r.pid = account->pid;
    r.card = account->card;
    r.alive = account->ended_ns == 0 ? 1 : 0;
    r.contexts = account->contexts;
    r.explicit_bytes = account->explicit_bytes;
    r.explicit_high = account->explicit_high;
    r.granule_bytes = account->physical_bytes();
    r.context_bytes = account->context_bytes;
    r.module_bytes = account->module_bytes;
    r.gpu_ns = account->gpu_ns;
    r.copy_ns = account->copy_ns;
    r.launches = account->launches;
    r.allocations = account->allocations;
    r.refused = account->refused;
    r.started_ns = account->started_ns;
    r.ended_ns = account->ended_ns;
    copy_text(r.name, account->name);
    copy_text(r.cgroup, account->group->cgroup);
    out.push_back(r);
  }
  return out;
}

std::vector<GroupRecord> group_records(const Kernel& kernel) {
  std::vector<GroupRecord> out;
  for (const auto& [key, group] : kernel.groups()) {
    if (group->grants == 0 && group->processes == 0) continue;
    GroupRecord r = {};
    copy_text(r.cgroup, group->cgroup);
    r.card = group->card;
    r.processes = group->processes;
    r.explicit_bytes = group->explicit_bytes;
    r.explicit_high = group->explicit_high;
    r.context_bytes = group->context_bytes;
    r.gpu_ns = group->gpu_ns;
    r.grants = group->grants;
    out.push_back(r);
  }
  return out;
}

std::vector<CardTruthRecord> card_records(const Kernel& kernel) {
  std::vector<CardTruthRecord> out;
  for (std::uint32_t card = 0; card < kernel.machine().count; ++card) {
    const Engine& engine = kernel.engine(card);
    CardTruthRecord r = {};
    copy_text(r.uuid, kernel.machine().cards[card].uuid);
    r.card = card;
    r.contexts = contexts_on(kernel, card);
    r.total_bytes = kernel.machine().model->memory_bytes;
    r.used_bytes = engine.used_bytes;
    for (const auto& [socket, client] : kernel.clients()) {
      r.explicit_bytes += client->accounts[card]->explicit_bytes;
      r.context_bytes += client->accounts[card]->context_bytes;
    }
    r.gpu_ns = engine.gpu_ns;
    r.switch_ns = engine.switch_ns;
    r.switches = engine.switches;
    r.xids = engine.xids;
    r.lost = engine.lost ? 1 : 0;
    r.recovery = engine.recovery;
    out.push_back(r);
  }
  return out;
}

std::vector<WindowRecord> window_records(const Kernel& kernel, std::uint64_t window_ms,
                                         std::uint64_t since_ns, std::uint64_t now) {
  const std::uint64_t length = window_ms * 1'000'000;
  const std::uint64_t oldest = now - std::min(now, (kBuckets - 2) * kBucketNs);
  const std::uint64_t from = std::max({since_ns, oldest, kernel.boot_ns()});
  std::vector<WindowRecord> out;
  if (from >= now) return out;  // a client can ask for any time; near 2^64 the number of its window would overflow
  for (const auto& account : kernel.accounts()) {
    const std::uint64_t begin = std::max(from, account->started_ns);
    const std::uint64_t end =
        account->ended_ns == 0 ? now : std::min(now, account->ended_ns + length);
    // Only the windows of the process's life: a list has up to 13,000 windows, and most of the accounts are of
    // processes that have ended.
    const std::uint64_t first = std::max((from + length - 1) / length, begin / length);
    for (std::uint64_t w = first; (w + 1) * length <= now && w * length < end; ++w) {
      out.push_back({account->pid, account->card, w * length,
                     account->history.sum(w * length, (w + 1) * length)});
    }
  }
  return out;
}

}  // namespace carve::sim
