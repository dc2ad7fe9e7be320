// A library's gate and memory account next to noise on the same account page, and the arbiter that reads it. The
// account never grants memory beyond the limit, nothing is launched while blocked, and at most one slice has the card.
// The input is a script: the number of slices and their terms, then one action after another.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "lease/arbiter.h"
#include "lease/gate.h"
#include "lease/memory_account.h"
#include "lease/observe.h"

namespace {

using carve::abi::LeaseMode;
namespace abi = carve::abi;
namespace lease = carve::lease;

constexpr int kMostSlices = 4;
constexpr std::uint32_t kEntries = 8;  // account entries that the script writes to
constexpr std::uint32_t kStock = 4;  // the entries from here on are stock entries
constexpr std::uint64_t kLimit = 1 << 20;

void check(bool holds) {
  if (!holds) std::abort();
}

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool ended() const { return left_ == 0; }
  template <class T>
  T take() {
    T value{};
    const std::size_t part = left_ < sizeof value ? left_ : sizeof value;
    std::memcpy(&value, data_, part);
    data_ += part;
    left_ -= part;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

struct Slice {
  abi::GrantPage grant{};
  abi::AccountPage account{};
  lease::Gate gate;
  lease::Lane lane;
  int number = -1;
};

class Card {
 public:
  explicit Card(Script& script) {
    count_ = 1 + script.take<std::uint8_t>() % kMostSlices;
    for (int i = 0; i < count_; ++i) {
      Slice& slice = slices_[i];
      slice.number = arbiter_.add(terms(script));
      slice.grant.memory_limit.raw = kLimit;
      slice.grant.high_entry.raw = kEntries;
      slice.account.high_entry.raw = kEntries;
      slice.grant.stock_first.raw = kStock;
      slice.grant.stock_count.raw = kEntries - kStock;
      slice.grant.heartbeat_ns.raw = now_;
      slice.gate.attach(&slice.grant, &slice.account, &slice.account.entries[0]);
    }
  }

  void act(Script& script) {
    const auto what = script.take<std::uint8_t>();
    Slice& slice = slices_[what / 8 % count_];
    switch (what % 8) {
      case 0:
      case 1: return scribble(slice, script);
      case 2: return arbiter_.set_terms(slice.number, terms(script));
      case 3: return reserve(slice, script.take<std::uint32_t>());
      case 4: return launch(slice, script.take<std::uint8_t>());
      case 5: slice.account.high_entry.raw = script.take<std::uint32_t>(); return;
      case 6: return collect(slice);
      default: return step(script.take<std::uint32_t>());
    }
  }

 private:
  // Terms that the agent can set: the control socket's reader rejects all others.
  static lease::Terms terms(Script& script) {
    const auto share = static_cast<abi::ShareClass>(script.take<std::uint8_t>() % 3);
    const auto priority = static_cast<abi::PriorityClass>(script.take<std::uint8_t>() % 3);
    const std::uint32_t compute = 1 + script.take<std::uint8_t>() % 100;
    return {share == abi::ShareClass::kBestEffort ? 0 : compute, share, priority};
  }

  static void scribble(Slice& slice, Script& script) {
    const std::size_t at = script.take<std::uint8_t>() % (kEntries * sizeof(abi::AccountEntry) / 4);
    const auto value = script.take<std::uint32_t>();
    std::memcpy(reinterpret_cast<std::uint8_t*>(slice.account.entries) + at * 4, &value, sizeof value);
  }

  // The sum of the announced bytes of all account entries, in more than 64 bits, so that it cannot overflow.
  static unsigned __int128 announced(const Slice& slice) {
    unsigned __int128 sum = 0;
    for (std::uint32_t i = 0; i < kEntries; ++i) {
      const std::uint64_t word = slice.account.entries[i].used_bytes.raw;
      sum += i < kStock ? word : abi::stock_charged(word);
    }
    return sum;
  }

  static void collect(Slice& slice) {
    const auto before = announced(slice);
    lease::MemoryAccount account(slice.grant, slice.account, slice.account.entries[1]);
    const std::uint64_t used = account.used();
    account.collect_stock();
    check(announced(slice) <= before);
    check(account.used() >= used);  // what a tenant wrote as stock and never announced is no memory
    check(account.used() == account.charged());
  }

  static void reserve(Slice& slice, std::uint64_t bytes) {
    const auto before = announced(slice);
    const std::uint64_t own = slice.account.entries[1].used_bytes.raw;
    lease::MemoryAccount account(slice.grant, slice.account, slice.account.entries[1]);
    const bool granted = account.reserve(bytes);
    check(granted == (before + bytes <= kLimit));
    check(slice.account.entries[1].used_bytes.raw == (granted ? own + bytes : own));
  }

  void launch(Slice& slice, std::uint8_t key) {
    const auto mode = static_cast<LeaseMode>(slice.grant.lease.raw & 3);
    const lease::Passage p = slice.gate.enter(slice.lane, key, key % 3, [this] { return now_; });
    if (p.verdict != lease::Verdict::kGo) {
      check(p.wait_ns > 0 && p.wait_ns <= 50'000'000);
      return;
    }
    check(mode != LeaseMode::kBlocked || slice.gate.on_its_own());
    if (p.close) slice.gate.abandoned(p.closed, slice.gate.longest_expected_ns(p.closed), now_);
    lease::Segment done;
    if (slice.gate.leave(slice.lane, p, &done)) slice.gate.completed(done, now_, now_ + key * 1000ULL, now_);
  }

  void step(std::uint32_t passed) {
    now_ += passed;
    lease::Observation seen[kMostSlices];
    for (int i = 0; i < count_; ++i) {
      seen[i] = lease::observe(slices_[i].account, kEntries, last_, now_);
      check(seen[i].inflight_ns <= lease::kMostInflightNs);
    }
    arbiter_.step(now_, seen);
    check(arbiter_.next_step_ns() > now_);
    int holders = 0;
    for (int i = 0; i < count_; ++i) publish(slices_[i], &holders);
    check(holders <= 1);
    last_ = now_;
  }

  void publish(Slice& slice, int* holders) {
    const lease::Grant& grant = arbiter_.grant(slice.number);
    check(grant.rate_ppm <= 1'000'000);
    check(grant.credit_us <= 50'000);
    check(arbiter_.charged_ns(slice.number) <= now_ - kBegin);
    if (grant.mode != LeaseMode::kBlocked) ++*holders;
    slice.grant.heartbeat_ns.raw = now_;
    slice.grant.end_ns.raw = grant.end_ns;
    slice.grant.credit_us.raw = grant.credit_us;
    slice.grant.rate_ppm.raw = grant.rate_ppm;
    slice.grant.lease.raw = static_cast<std::uint32_t>(grant.mode) | grant.epoch << 2;
  }

  static constexpr std::uint64_t kBegin = 1'000'000'000;
  std::uint64_t now_ = kBegin;
  std::uint64_t last_ = kBegin;
  int count_ = 0;
  Slice slices_[kMostSlices];
  lease::Arbiter arbiter_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Script script(data, size);
  const auto card = std::make_unique<Card>(script);
  while (!script.ended()) card->act(script);
  return 0;
}
