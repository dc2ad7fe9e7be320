// Arbitrary bytes as account pages that change between two observations: each observation is within its bounds. From it
// the arbiter grants the card to at most one slice and never sleeps past the end of a lease.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "lease/arbiter.h"
#include "lease/observe.h"

namespace {

using namespace carve;

constexpr int kSlices = 3;

void check(bool fine) {
  if (!fine) std::abort();
}

struct World {
  lease::Arbiter arbiter;
  abi::AccountPage pages[kSlices];
  lease::Observation seen[lease::kMaxSlices];
};

/// Takes bytes while there are any, then zeros.
struct Input {
  const std::uint8_t* data;
  std::size_t left;
  template <class T>
  T take() {
    T value{};
    const std::size_t n = left < sizeof value ? left : sizeof value;
    std::memcpy(&value, data, n);
    data += n;
    left -= n;
    return value;
  }
};

/// Writes one word anywhere in one of the pages.
void scribble(World& world, Input& input) {
  const auto where = input.take<std::uint32_t>();
  auto* words = reinterpret_cast<std::uint64_t*>(&world.pages[where % kSlices]);
  // Mostly the first account entries and the header, which the code reads.
  const std::size_t all = abi::kAccountPageBytes / 8;
  const std::size_t at = where / kSlices % 4 == 0 ? where / 16 % all : where / 16 % 2 == 0 ? 8 : 512 + where / 32 % 64;
  words[at] = input.take<std::uint64_t>() >> (where >> 26);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World* world = new World;
  new (&world->arbiter) lease::Arbiter;
  std::memset(static_cast<void*>(world->pages), 0, sizeof world->pages);
  Input input{data, size};
  bool fixed[kSlices];
  for (int i = 0; i < kSlices; ++i) {
    const auto kind = input.take<std::uint8_t>();
    fixed[i] = kind % 3 == 0;
    const auto priority = static_cast<abi::PriorityClass>(kind / 3 % 3);
    world->arbiter.add({kind % 101U, static_cast<abi::ShareClass>(kind % 3), priority});
  }
  std::uint64_t now = 1'000'000'000;
  std::uint64_t last = now;
  while (input.left > 0) {
    now += input.take<std::uint32_t>() % 40'000'000;
    scribble(*world, input);
    for (int i = 0; i < kSlices; ++i) {
      lease::Observation& seen = world->seen[i];
      seen = lease::observe(world->pages[i], abi::kAccountEntries, last, now);
      check(seen.inflight_ns <= lease::kMostInflightNs);
      check(seen.edge_ns == 0 || (seen.edge_ns >= last && seen.edge_ns <= now));
      check(seen.busy || seen.inflight_ns == 0);
    }
    world->arbiter.step(now, world->seen);
    last = now;
    int granted = 0;
    int holder = -1;
    for (int i = 0; i < kSlices; ++i) {
      const lease::Grant& grant = world->arbiter.grant(i);
      granted += grant.mode != abi::LeaseMode::kBlocked;
      holder = grant.mode == abi::LeaseMode::kLease ? i : holder;
    }
    check(granted <= 1);
    bool awaited = false;
    for (int i = 0; i < kSlices; ++i) {
      // A slice with a cap may wait for its tokens instead.
      awaited = awaited || (holder >= 0 && i != holder && world->seen[i].want && !fixed[i]);
    }
    if (awaited) check(world->arbiter.next_step_ns() <= world->arbiter.grant(holder).end_ns);
    check(world->arbiter.next_step_ns() > now);
  }
  return 0;
}
