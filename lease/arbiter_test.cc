#include "lease/arbiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "lease/observe.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

Terms burst(std::uint32_t compute, abi::PriorityClass priority = abi::PriorityClass::kStandard) {
  return {compute, abi::ShareClass::kBurst, priority};
}

struct Card {
  Arbiter arbiter;
  std::vector<Observation> seen = std::vector<Observation>(kMaxSlices);
  std::uint64_t now = 0;
  void step(std::uint64_t at) { arbiter.step(now = at, seen.data()); }
  abi::LeaseMode mode(int slice) { return arbiter.grant(slice).mode; }
};

/// Slices that work whenever they may and ask for a lease otherwise. `had` counts how long each of them had the card.
struct Workers : Card {
  static constexpr std::uint64_t kTick = kMs / 10;
  std::vector<bool> works = std::vector<bool>(kMaxSlices);
  std::vector<std::uint64_t> had = std::vector<std::uint64_t>(kMaxSlices);

  int add(const Terms& terms) {
    const int slice = arbiter.add(terms);
    works[static_cast<std::size_t>(slice)] = true;
    return slice;
  }
  void play(std::uint64_t length) {
    for (const std::uint64_t end = now + length; now < end;) {
      const std::uint64_t at = now + kTick;
      for (std::size_t i = 0; i < static_cast<std::size_t>(arbiter.slices_end()); ++i) {
        if (!works[i]) continue;
        const bool runs = mode(static_cast<int>(i)) != abi::LeaseMode::kBlocked;
        had[i] += runs ? kTick : 0;
        seen[i].edge_ns = runs != seen[i].busy ? at : seen[i].edge_ns;
        seen[i].want = !runs;
        seen[i].busy = runs;
        seen[i].busy_ns += runs ? kTick : 0;
      }
      step(at);
    }
  }
  double part(int slice, std::uint64_t of) {
    return static_cast<double>(had[static_cast<std::size_t>(slice)]) / static_cast<double>(of);
  }
};

TEST(Arbiter, TheOnlySliceHasTheCardWithoutAsking) {
  Card card;
  const int slice = card.arbiter.add(burst(30));
  card.step(0);
  EXPECT_EQ(card.mode(slice), abi::LeaseMode::kSolo);
  EXPECT_EQ(card.arbiter.next_step_ns(), kNever) << "nothing to do until a slice asks";
}

// Work that a slice may have in flight when it is alone would delay a slice of a higher class that wakes up.
TEST(Arbiter, BesideASleepingSliceOfAHigherClassALoneSliceHasASmallCredit) {
  const Tuning tuning;
  Card card;
  const int online = card.arbiter.add(burst(50, abi::PriorityClass::kOnline));
  const int offline = card.arbiter.add(burst(50, abi::PriorityClass::kOffline));
  auto& works = card.seen[static_cast<std::size_t>(offline)];
  works.want = true;
  card.step(0);
  works = {false, true, kMs, 0, 0, 1};
  card.step(kMs);
  EXPECT_EQ(card.mode(offline), abi::LeaseMode::kLease);
  EXPECT_EQ(card.arbiter.grant(offline).credit_us, tuning.offline_credit_us);
  EXPECT_EQ(card.arbiter.grant(offline).end_ns, kNever) << "it is alone, so its lease has no end";
  auto& wakes = card.seen[static_cast<std::size_t>(online)];
  wakes.want = true;
  works.inflight_ns = 0;
  card.step(100 * kMs);
  EXPECT_EQ(card.mode(online), abi::LeaseMode::kLease) << "at once";
  EXPECT_EQ(card.mode(offline), abi::LeaseMode::kBlocked);
  card.arbiter.remove(online);
  card.step(101 * kMs);
  EXPECT_EQ(card.mode(offline), abi::LeaseMode::kSolo);
}

TEST(Arbiter, ABlockedSliceIsGrantedNothing) {
  Workers card;
  const int one = card.add(burst(50));
  const int other = card.add(burst(50));
  card.play(5 * kMs);
  const int blocked = card.mode(one) == abi::LeaseMode::kBlocked ? one : other;
  const Grant& grant = card.arbiter.grant(blocked);
  EXPECT_EQ(grant.mode, abi::LeaseMode::kBlocked);
  EXPECT_EQ(std::pair(grant.end_ns, grant.credit_us), std::pair(std::uint64_t{0}, 0U));
}

TEST(Arbiter, AtMostOneSliceMayLaunchAtAnyTime) {
  Card card;
  std::mt19937_64 random(7);
  for (int i = 0; i < 12; ++i) card.arbiter.add(burst(1 + static_cast<std::uint32_t>(random() % 20)));
  for (int round = 0; round < 20'000; ++round) {
    for (int i = 0; i < 12; ++i) {
      Observation& o = card.seen[static_cast<std::size_t>(i)];
      o.want = random() % 3 == 0;
      o.busy = card.mode(i) != abi::LeaseMode::kBlocked && random() % 2 == 0;
      o.inflight_ns = o.busy ? random() % (5 * kMs) : 0;
      o.busy_ns += o.busy ? random() % kMs : 0;
    }
    card.step(card.now + random() % (2 * kMs));
    int granted = 0;
    for (int i = 0; i < 12; ++i) granted += card.mode(i) != abi::LeaseMode::kBlocked;
    ASSERT_LE(granted, 1) << "round " << round;
    ASSERT_GT(card.arbiter.next_step_ns(), card.now);
  }
}

TEST(Arbiter, AHolderThatStopsLosesTheCardAfterLeaseAndDrain) {
  Card card;
  const int stopped = card.arbiter.add(burst(50));
  const int neighbour = card.arbiter.add(burst(50));
  card.seen[0] = {.want = true};
  card.step(1);
  ASSERT_NE(card.mode(stopped), abi::LeaseMode::kBlocked);
  // From now on its page does not change: it always has work in flight.
  card.seen[0] = {.want = false, .busy = true, .inflight_ns = 900 * kMs};
  card.seen[1] = {.want = true};
  const Tuning tuning;
  std::uint64_t granted_at = 0;
  while (granted_at == 0 && card.now < 1000 * kMs) {
    card.step(std::max(card.now + 1, std::min(card.arbiter.next_step_ns(), card.now + kMs)));
    if (card.mode(neighbour) != abi::LeaseMode::kBlocked) granted_at = card.now;
  }
  EXPECT_GT(granted_at, 0U);
  EXPECT_LE(granted_at, tuning.quantum + tuning.drain_timeout + 2 * kMs);
}

/// A single kernel runs for a long time: the slice neither asks for a lease nor makes progress, but it is not idle.
TEST(Arbiter, ASliceWithOneLongOperationInFlightStaysActive) {
  Card card;
  card.arbiter.add(burst(50));
  const int neighbour = card.arbiter.add(burst(50));
  card.seen[0] = {.want = true};
  card.step(1);
  card.seen[0] = {.want = false, .busy = true, .inflight_ns = 900 * kMs};
  card.seen[1] = {.want = true};
  const std::uint64_t end = 3 * Tuning().idle_forget;
  while (card.now < end) {
    card.step(card.now + kMs);
    card.seen[1].want = card.mode(neighbour) == abi::LeaseMode::kBlocked;
    card.seen[1].busy = !card.seen[1].want;
    card.seen[1].busy_ns += card.seen[1].busy ? kMs : 0;
    ASSERT_NE(card.mode(neighbour), abi::LeaseMode::kSolo) << "at " << card.now / kMs << " ms";
  }
}

TEST(Arbiter, OnlineTakesTheLeaseImmediately) {
  Card card;
  const int offline = card.arbiter.add(burst(50, abi::PriorityClass::kOffline));
  const int online = card.arbiter.add(burst(50, abi::PriorityClass::kOnline));
  card.seen[0] = {.want = true};
  card.step(1);
  ASSERT_NE(card.mode(offline), abi::LeaseMode::kBlocked);
  card.seen[1] = {.want = true};
  card.step(2);
  EXPECT_EQ(card.mode(offline), abi::LeaseMode::kBlocked);
  EXPECT_EQ(card.mode(online), abi::LeaseMode::kLease);
}

TEST(Arbiter, StuckWorkGetsOneLease) {
  Card card;
  card.arbiter.add(burst(90));
  const int stuck = card.arbiter.add(burst(10));
  card.seen[1] = {.want = true, .busy = true, .inflight_ns = kMs};
  bool rescued = false;
  for (std::uint64_t at = 0; at < 400 * kMs && !rescued; at += kMs) {
    card.seen[0] = {.want = true, .busy = true, .inflight_ns = kMs, .busy_ns = at};
    card.step(at);
    rescued = card.mode(stuck) == abi::LeaseMode::kLease;
  }
  EXPECT_TRUE(rescued);
}

TEST(Arbiter, ASleepingSliceDoesNotClaimTheTimeItSlept) {
  Card card;
  const int worker = card.arbiter.add(burst(50));
  const int sleeper = card.arbiter.add(burst(50));
  std::uint64_t at = 0;
  for (; at < 5000 * kMs; at += kMs) {
    card.seen[0] = {.want = at == 0, .busy = true, .inflight_ns = kMs, .busy_ns = at};
    card.step(at);
  }
  std::uint64_t blocked_since = at;
  std::uint64_t longest = 0;
  for (const std::uint64_t end = at + 1000 * kMs; at < end; at += kMs) {
    const bool runs = card.mode(worker) != abi::LeaseMode::kBlocked;
    card.seen[0].want = true;
    card.seen[0].busy = runs;
    card.seen[0].busy_ns += runs ? kMs : 0;
    card.seen[1].want = true;
    card.seen[1].busy = !runs && card.mode(sleeper) != abi::LeaseMode::kBlocked;
    card.seen[1].busy_ns += card.seen[1].busy ? kMs : 0;
    card.step(at);
    if (card.mode(worker) != abi::LeaseMode::kBlocked) blocked_since = at;
    else longest = std::max(longest, at - blocked_since);
  }
  EXPECT_LE(longest, 80 * kMs);
}

/// Runs two slices for two seconds: the slice `neighbour`, which always has work, and a slice with page contents from
/// `tenant`. Returns the part of the time in which `neighbour` had the card.
double had_by(int neighbour, const std::function<void(Observation& page, bool granted, std::uint64_t now)>& tenant) {
  Card card;
  card.arbiter.add(burst(50));
  card.arbiter.add(burst(50));
  const auto its = static_cast<std::size_t>(neighbour);
  std::uint64_t had = 0;
  constexpr std::uint64_t kTick = kMs / 10;
  for (std::uint64_t at = kTick; at < 2'000 * kMs; at += kTick) {
    const bool runs = card.mode(neighbour) != abi::LeaseMode::kBlocked;
    had += runs ? kTick : 0;
    card.seen[its].edge_ns = runs != card.seen[its].busy ? at : card.seen[its].edge_ns;
    card.seen[its].want = !runs;
    card.seen[its].busy = runs;
    card.seen[its].busy_ns += runs ? kTick : 0;
    tenant(card.seen[1 - its], card.mode(1 - neighbour) != abi::LeaseMode::kBlocked, at);
    card.step(at);
  }
  return static_cast<double>(had) / (2'000.0 * kMs);
}

/// The smaller of the parts that the neighbour gets as slice 0 and as slice 1.
double had_by_neighbour(const std::function<void(Observation& page, bool granted, std::uint64_t now)>& tenant) {
  return std::min(had_by(0, tenant), had_by(1, tenant));
}

TEST(Arbiter, ASliceThatAsksAndNeverWorksCostsTheNeighbourLittle) {
  EXPECT_GT(had_by_neighbour([](Observation& page, bool, std::uint64_t) { page.want = true; }), 0.7);
}

TEST(Arbiter, ASliceThatHidesItsTimeGetsAtMostItsShare) {
  // The slice works when it may, with a pause of 1 ms in every 8 ms, and never reports measured time.
  const double seen = had_by_neighbour([](Observation& page, bool granted, std::uint64_t now) {
    const bool works = granted && now / kMs % 8 != 0;
    page.edge_ns = works != page.busy ? now : page.edge_ns;
    page.busy = works;
    page.want = true;
  });
  EXPECT_GT(seen, 0.44);
  // The slice does the same, and its work is never in flight at the moment of a step.
  EXPECT_GT(had_by_neighbour([](Observation& page, bool, std::uint64_t now) {
              page.want = now / (kMs / 10) % 2 == 0;
              page.edge_ns = now;
            }),
            0.44);
}

TEST(Arbiter, HoldingTheCardIsChargedEvenWithLittleWork) {
  // The slice launches 0.01 ms of work every 0.2 ms: too often to be treated as idle.
  EXPECT_GT(had_by_neighbour([](Observation& page, bool granted, std::uint64_t now) {
              const bool launches = now / (kMs / 10) % 2 == 0;
              page.want = launches && !granted;
              page.busy_ns += launches && granted ? kMs / 100 : 0;
              page.edge_ns = now;
            }),
            0.44);
  // The slice asks for a lease all the time, works in a third of the time, and reports this truthfully.
  EXPECT_GT(had_by_neighbour([](Observation& page, bool granted, std::uint64_t now) {
              const bool works = granted && now / (kMs / 10) % 3 == 0;
              page.edge_ns = works != page.busy ? now : page.edge_ns;
              page.want = true;
              page.busy = works;
              page.busy_ns += works ? kMs / 10 : 0;
            }),
            0.44);
}

TEST(Arbiter, SameInputsGiveSameDecisionsAndDifferentOnesDoNot) {
  const auto play = [](std::uint64_t altered) {
    Card card;
    for (int i = 0; i < 3; ++i) card.arbiter.add(burst(20 + 10 * static_cast<std::uint32_t>(i)));
    std::mt19937_64 random(3);
    std::vector<std::uint64_t> decisions;
    for (std::uint64_t round = 0; round < 10'000; ++round) {
      for (std::size_t i = 0; i < 3; ++i) {
        card.seen[i].want = random() % 2 == 0;
        const bool works = random() % 4 != 0 && card.mode(static_cast<int>(i)) != abi::LeaseMode::kBlocked;
        card.seen[i].busy = works;
        card.seen[i].busy_ns += works ? kMs / 2 : 0;
      }
      // A false measured time is bounded by the time that passed; a different time of the step is not.
      card.step(card.now + random() % kMs + (round == altered ? 3 * kMs : 0));
      for (int i = 0; i < 3; ++i) {
        const Grant& g = card.arbiter.grant(i);
        decisions.push_back(static_cast<std::uint64_t>(g.mode) ^ g.end_ns << 2 ^ std::uint64_t{g.epoch} << 40);
      }
    }
    return decisions;
  };
  EXPECT_EQ(play(kNever), play(kNever));
  EXPECT_NE(play(kNever), play(5000));
}

TEST(Arbiter, AnExhaustedSliceThatBecomesBurstIsServed) {
  Card card;
  const int slice = card.arbiter.add({30, abi::ShareClass::kFixed, abi::PriorityClass::kStandard});
  card.arbiter.add(burst(30));
  std::uint64_t at = 0;
  for (; at < 200 * kMs; at += kMs) {
    const bool runs = card.mode(slice) != abi::LeaseMode::kBlocked;
    card.seen[0].want = !runs;
    card.seen[0].busy = runs;
    card.seen[0].busy_ns += runs ? kMs : 0;
    card.step(at);
  }
  while (card.mode(slice) != abi::LeaseMode::kBlocked) card.step(at += kMs);
  card.arbiter.set_terms(slice, burst(30));
  card.seen[0].want = true;
  card.seen[0].busy = false;
  card.step(at + kMs);
  EXPECT_NE(card.mode(slice), abi::LeaseMode::kBlocked);
}

TEST(Arbiter, ALateStepIsSplitFairly) {
  Card card;
  card.arbiter.add(burst(50));
  card.arbiter.add(burst(50));
  card.seen[0] = card.seen[1] = {.want = true, .busy = true, .inflight_ns = kMs};
  card.step(1);
  card.step(kMs);
  const std::uint64_t before = card.arbiter.charged_ns(0);
  card.step(101 * kMs);
  EXPECT_NEAR(static_cast<double>(card.arbiter.charged_ns(0) - before), 50e6, 1e6);
}

// The arbiter is stopped for half a minute (SIGSTOP), and the slices continue at their last rates. The slice that was
// last seen to work must not pay for all of that time while the other slice catches up for just as long.
TEST(Arbiter, TimeWithoutAnArbiterIsChargedToNoSlice) {
  for (const int worker : {0, 1}) {
    Card card;
    card.arbiter.add(burst(50));
    card.arbiter.add(burst(50));
    card.seen[static_cast<std::size_t>(worker)] = {.want = true, .busy = true, .inflight_ns = kMs};
    card.step(1);
    card.seen[static_cast<std::size_t>(1 - worker)] = {.want = true};
    card.step(kMs);
    const std::uint64_t before = card.arbiter.charged_ns(worker);
    card.step(30'001 * kMs);
    EXPECT_EQ(card.arbiter.charged_ns(worker) - before, Tuning{}.quantum) << "slice " << worker;
    card.seen[static_cast<std::size_t>(worker)] = {.want = true, .edge_ns = 30'001 * kMs, .busy_ns = 30'000 * kMs};
    card.step(30'002 * kMs);
    EXPECT_LE(card.arbiter.charged_ns(worker) - before, Tuning{}.quantum + kMs) << "measured later, slice " << worker;
  }
}

TEST(Arbiter, NoSliceIsChargedMoreThanTheElapsedTime) {
  Arbiter arbiter;
  const int slice = arbiter.add({});
  constexpr std::uint64_t kBegin = 5'000'000'000;  // the clock does not start at 0
  Observation seen{};
  seen.busy_ns = 4'000'000'000;
  arbiter.step(kBegin, &seen);
  EXPECT_EQ(arbiter.charged_ns(slice), 0U);
  seen.busy_ns += 1'000'000'000;
  arbiter.step(kBegin + 1'000'000, &seen);
  EXPECT_EQ(arbiter.charged_ns(slice), 1'000'000U);
}

// The slice has 8 ms of work in flight by the clock and then reports how long the work really took.
TEST(Arbiter, MeasuredTimeSettlesPresumedTimeWithinBounds) {
  const auto charged = [](std::uint64_t measured) {
    Card card;
    const int slice = card.arbiter.add(burst(50));
    card.step(kMs);
    card.seen[0] = {.busy = true, .inflight_ns = kMs, .edge_ns = 2 * kMs};
    card.step(2 * kMs);
    card.step(5 * kMs);
    EXPECT_EQ(card.arbiter.charged_ns(slice), 3 * kMs) << "presumed while it works";
    card.seen[0] = {.edge_ns = 10 * kMs, .busy_ns = measured};
    card.step(10 * kMs);
    return card.arbiter.charged_ns(slice);
  };
  EXPECT_EQ(charged(8 * kMs), 8 * kMs);
  EXPECT_EQ(charged(7 * kMs), 7 * kMs);
  EXPECT_EQ(charged(6 * kMs), 6 * kMs);
  EXPECT_EQ(charged(5 * kMs), 6 * kMs) << "at most a quarter is returned";
  EXPECT_EQ(charged(0), 6 * kMs);
  EXPECT_EQ(charged(8 * kMs + 5), 8 * kMs + 5) << "work that began and ended between two steps";
  EXPECT_EQ(charged(20 * kMs), 9 * kMs) << "9 ms had passed";
}

TEST(Arbiter, AddFailsBeyondMaxSlices) {
  auto arbiter = std::make_unique<Arbiter>();
  for (std::uint32_t i = 0; i < kMaxSlices; ++i) EXPECT_EQ(arbiter->add(burst(1)), static_cast<int>(i));
  EXPECT_EQ(arbiter->add(burst(1)), -1);
  arbiter->remove(5);
  EXPECT_EQ(arbiter->add(burst(1)), 5);
}

TEST(Arbiter, EverySliceOfAFullCardIsServed) {
  auto card = std::make_unique<Workers>();
  for (std::uint32_t i = 0; i < kMaxSlices; ++i)
    card->add({i % 3 == 0 ? 0U : 1U,
               i % 3 == 0   ? abi::ShareClass::kBestEffort
               : i % 3 == 1 ? abi::ShareClass::kFixed
                            : abi::ShareClass::kBurst,
               i % 2 == 0 ? abi::PriorityClass::kStandard : abi::PriorityClass::kOffline});
  card->works.assign(kMaxSlices, false);
  const auto last = static_cast<int>(kMaxSlices) - 1;
  for (const int slice : {0, 1, last}) card->works[static_cast<std::size_t>(slice)] = true;
  card->play(200 * kMs);
  card->works.assign(kMaxSlices, false);
  for (auto& page : card->seen) page = {.busy_ns = page.busy_ns};
  card->seen.back().want = true;
  for (const std::uint64_t end = card->now + 100 * kMs; card->now < end;) card->step(card->now + kMs);
  EXPECT_NE(card->mode(last), abi::LeaseMode::kBlocked);
}

TEST(Arbiter, SharesFollowTheGuarantees) {
  const Terms besteffort{0, abi::ShareClass::kBestEffort, abi::PriorityClass::kStandard};
  const Terms fixed{20, abi::ShareClass::kFixed, abi::PriorityClass::kStandard};
  const auto at_most = [](Terms terms, std::uint32_t ceiling) {
    terms.ceiling = ceiling;
    return terms;
  };
  const struct {
    std::vector<Terms> terms;
    std::vector<double> parts;
  } cards[] = {
      {{burst(75), burst(25)}, {0.75, 0.25}},
      {{burst(25), burst(75)}, {0.25, 0.75}},
      {{burst(60), burst(30), burst(10)}, {0.6, 0.3, 0.1}},
      {{burst(49), besteffort}, {0.98, 0.02}},
      {{besteffort, besteffort}, {0.5, 0.5}},
      {{fixed}, {0.2}},
      {{fixed, burst(20)}, {0.2, 0.8}},
      {{burst(20), fixed, fixed}, {0.6, 0.2, 0.2}},
      {{at_most(burst(30), 60)}, {0.6}},
      {{at_most(burst(30), 30)}, {0.3}},
      {{at_most(besteffort, 50)}, {0.5}},
      {{at_most(fixed, 90)}, {0.2}},
      {{at_most(burst(30), 60), burst(70)}, {0.3, 0.7}},
      {{at_most(burst(30), 60), burst(20)}, {0.6, 0.4}},
      {{at_most(burst(30), 40), burst(20)}, {0.4, 0.6}},
      {{at_most(burst(30), 40), at_most(burst(20), 30)}, {0.4, 0.3}},
      {{at_most(burst(30), 60), at_most(burst(30), 60)}, {0.5, 0.5}},
  };
  constexpr std::uint64_t kLong = 4'000 * kMs;
  for (const auto& [terms, parts] : cards) {
    Workers card;
    for (const Terms& one : terms) card.add(one);
    card.play(kLong);
    for (std::size_t i = 0; i < parts.size(); ++i)
      EXPECT_NEAR(card.part(static_cast<int>(i), kLong), parts[i], 0.015) << "slice " << i << " of " << parts.size();
  }
}

// A `fixed` slice of a whole card has the whole card as its rate. If it were capped, its lease length would be divided
// by 100 - 100.
TEST(Arbiter, AFixedSliceOfAWholeCardIsNotCapped) {
  Workers card;
  const int slice = card.add({100, abi::ShareClass::kFixed, abi::PriorityClass::kStandard});
  card.play(1'000 * kMs);
  EXPECT_EQ(card.mode(slice), abi::LeaseMode::kSolo);
  EXPECT_GT(card.part(slice, 1'000 * kMs), 0.99);
}

// A running slice gets, changes and loses its ceiling. What it used before does not count against it.
TEST(Arbiter, ACeilingAppliesFromTheMomentOfTheChange) {
  Workers card;
  Terms terms = burst(30);
  const int slice = card.add(terms);
  double before = 0;
  const auto part_with = [&](std::uint32_t ceiling) {
    terms.ceiling = ceiling;
    card.arbiter.set_terms(slice, terms);
    card.play(2'000 * kMs);
    const double all = static_cast<double>(card.arbiter.charged_ns(slice)) / (2'000.0 * kMs);
    const double part = all - before;
    before = all;
    return part;
  };
  EXPECT_GT(part_with(100), 0.98);
  EXPECT_NEAR(part_with(50), 0.5, 0.03);
  EXPECT_NEAR(part_with(80), 0.8, 0.03);
  EXPECT_NEAR(part_with(30), 0.3, 0.03);
  EXPECT_GT(part_with(100), 0.98);
}

TEST(Arbiter, ANewSliceStartsLevelWithTheOthers) {
  Workers card;
  const int first = card.add(burst(50));
  const int second = card.add(burst(50));
  card.play(1'000 * kMs);
  card.had.assign(kMaxSlices, 0);
  const int newcomer = card.add(burst(50));
  card.play(72 * kMs);
  for (const int slice : {first, second, newcomer})
    EXPECT_NEAR(card.part(slice, kMs), 24, 13) << "two leases each, plus or minus one: slice " << slice;
}

// Each slice number holds the card once, because the number must not matter.
TEST(Arbiter, AnIdleHolderYieldsAfterItsPause) {
  for (const int holder : {0, 1}) {
    const int other = 1 - holder;
    Workers card;
    card.add(burst(50));
    card.add(burst(50));
    card.play(100 * kMs);
    while (card.mode(holder) == abi::LeaseMode::kBlocked) card.play(kMs);
    card.play(kMs);
    // The holder becomes idle while the other slice waits.
    const std::uint64_t idle = card.now + 1'000;
    Observation& seen = card.seen[static_cast<std::size_t>(holder)];
    seen = {.edge_ns = idle, .busy_ns = seen.busy_ns};
    card.step(idle);
    EXPECT_NE(card.mode(holder), abi::LeaseMode::kBlocked) << "a pause between two launches";
    EXPECT_EQ(card.arbiter.next_step_ns(), idle + Tuning{}.idle_yield);
    card.step(idle + Tuning{}.idle_yield - 1);
    EXPECT_NE(card.mode(holder), abi::LeaseMode::kBlocked);
    card.step(idle + Tuning{}.idle_yield);
    EXPECT_EQ(card.mode(holder), abi::LeaseMode::kBlocked);
    EXPECT_NE(card.mode(other), abi::LeaseMode::kBlocked);
  }
}

// No slice needed the card for a while, so the holder is no longer active when another slice asks for the card.
TEST(Arbiter, AForgottenHolderYieldsToARequest) {
  for (const int holder : {0, 1}) {
    const int other = 1 - holder;
    Card card;
    card.arbiter.add(burst(50));
    card.arbiter.add(burst(50));
    card.seen[static_cast<std::size_t>(holder)] = {.want = true};
    card.step(kMs);
    card.seen[static_cast<std::size_t>(holder)] = {};
    card.step(2 * kMs);
    card.step(60 * kMs);
    ASSERT_NE(card.mode(holder), abi::LeaseMode::kBlocked);
    card.seen[static_cast<std::size_t>(other)] = {.want = true};
    card.step(60 * kMs + 1);
    while (card.mode(other) == abi::LeaseMode::kBlocked && card.now < 100 * kMs) card.step(card.arbiter.next_step_ns());
    EXPECT_LE(card.now, 61 * kMs);
  }
}

TEST(Arbiter, ARemovedHolderLosesTheCardImmediately) {
  for (const bool drains : {false, true}) {
    Workers card;
    const int first = card.add(burst(50));
    const int second = card.add(burst(50));
    card.play(500 * kMs);
    const bool second_has_it = card.mode(second) != abi::LeaseMode::kBlocked;
    const int holder = second_has_it ? second : first;
    const int other = second_has_it ? first : second;
    card.works.assign(kMaxSlices, false);
    Observation& held = card.seen[static_cast<std::size_t>(holder)];
    held = {.want = true, .busy = true, .inflight_ns = 500 * kMs, .busy_ns = held.busy_ns};
    if (drains) card.step(card.now + Tuning{}.quantum);
    ASSERT_EQ(card.mode(other), abi::LeaseMode::kBlocked);
    card.arbiter.remove(holder);
    EXPECT_EQ(card.arbiter.next_step_ns(), 0U) << "a step is due immediately";
    card.step(card.now + 1);
    EXPECT_NE(card.mode(other), abi::LeaseMode::kBlocked) << (drains ? "while its work ran on" : "within its lease");
    EXPECT_FALSE(card.arbiter.is_used(holder));
  }
}

/// Two slices with the same terms: `holder` has had a lease for a millisecond, `other` waits. Either may be slice 0.
struct Contended : Workers {
  explicit Contended(int holds, const Terms& terms = burst(50)) : holder(holds), other(1 - holds) {
    add(terms);
    add(terms);
    play(100 * kMs);
    while (mode(holder) == abi::LeaseMode::kBlocked) play(kTick);
    play(kMs);
  }
  Observation& page(int slice) { return seen[static_cast<std::size_t>(slice)]; }
  bool granted(int slice) { return mode(slice) != abi::LeaseMode::kBlocked; }
  int holder;
  int other;
};

TEST(Arbiter, ALightSliceBesideAHeavyOneGetsShorterLeases) {
  const auto length = [](std::uint32_t one, std::uint32_t other) {
    Workers card;
    card.add(burst(one));
    card.add(burst(other));
    card.play(500 * kMs);
    while (card.mode(0) != abi::LeaseMode::kBlocked) card.play(Workers::kTick);
    while (card.mode(0) == abi::LeaseMode::kBlocked) card.play(Workers::kTick);
    return card.arbiter.grant(0).end_ns - card.now;
  };
  constexpr std::uint64_t kQuantum = Tuning{}.quantum;
  EXPECT_EQ(length(50, 50), kQuantum);
  EXPECT_EQ(length(90, 10), kQuantum);
  EXPECT_EQ(length(20, 80), kQuantum) << "above a quarter of the heaviest weight";
  EXPECT_EQ(length(18, 90), kQuantum * 4 / 5);
  EXPECT_EQ(length(5, 90), kQuantum * 2 / 3) << "the shortest lease";
}

// When an exhausted slice is served again, it has tokens for 2.4 ms. They last for 3 ms, because 0.6 ms are added.
TEST(Arbiter, AFixedSliceHasTheCardForAsLongAsItsTokensLast) {
  Workers card;
  const int slice = card.add({20, abi::ShareClass::kFixed, abi::PriorityClass::kStandard});
  card.play(500 * kMs);
  while (card.mode(slice) != abi::LeaseMode::kBlocked) card.play(Workers::kTick);
  while (card.mode(slice) == abi::LeaseMode::kBlocked) card.play(Workers::kTick);
  EXPECT_NEAR(static_cast<double>(card.arbiter.grant(slice).end_ns - card.now), 3.0 * kMs, 0.1 * kMs);
}

TEST(Arbiter, OverrunningWorkDelaysTheNextLeaseByAtMostTheDrainTimeout) {
  for (const int holder : {0, 1}) {
    Contended card(holder);
    card.page(holder) = {.want = true, .busy = true, .inflight_ns = 500 * kMs, .busy_ns = card.page(holder).busy_ns};
    std::uint64_t end = 0;
    while (card.granted(holder) && card.now < 200 * kMs) {  // it may get a second lease in a row
      end = card.arbiter.grant(holder).end_ns;
      card.step(end - 1);
      EXPECT_TRUE(card.granted(holder));
      EXPECT_EQ(card.arbiter.next_step_ns(), end);
      card.step(end);
    }
    EXPECT_FALSE(card.granted(holder) || card.granted(card.other)) << "the work in flight has the card";
    EXPECT_EQ(card.arbiter.next_step_ns(), end + Tuning{}.drain_timeout);
    card.step(end + Tuning{}.drain_timeout - 1);
    EXPECT_FALSE(card.granted(card.other));
    card.step(end + Tuning{}.drain_timeout);
    EXPECT_TRUE(card.granted(card.other));
  }
}

TEST(Arbiter, TheNextLeaseBeginsWhenLittleIsInFlight) {
  const std::uint64_t little = Tuning{}.early_handoff;
  for (const bool more : {false, true}) {
    Contended card(0);
    card.page(0) = {
        .want = true, .busy = true, .inflight_ns = little + (more ? 1 : 0), .busy_ns = card.page(0).busy_ns};
    const std::uint64_t end = card.arbiter.grant(0).end_ns;
    card.step(end);
    EXPECT_EQ(card.granted(1), !more) << "at the end of the lease";
    if (!more) continue;
    EXPECT_EQ(card.arbiter.next_step_ns(), end + 1) << "when little is expected to be left";
    card.step(end + 1);
    EXPECT_FALSE(card.granted(1));
    card.page(0).inflight_ns = little;
    card.step(end + 2);
    EXPECT_TRUE(card.granted(1)) << "while it drains";
  }
}

TEST(Arbiter, ASliceThatWasJustGrantedTheCardHasTimeToBegin) {
  for (const int holder : {0, 1}) {
    Contended card(holder);
    std::uint64_t end = 0;
    while (card.granted(holder) && card.now < 300 * kMs) {  // it may get a second lease in a row
      end = card.arbiter.grant(holder).end_ns;
      card.page(holder) = {.want = true, .busy_ns = card.page(holder).busy_ns};
      card.step(end);
    }
    ASSERT_TRUE(card.granted(card.other));
    card.page(card.other).want = false;  // it saw the grant and prepares its first launch
    card.step(end + Tuning{}.idle_yield - 1);
    EXPECT_TRUE(card.granted(card.other));
    card.step(end + Tuning{}.idle_yield);
    EXPECT_FALSE(card.granted(card.other));
    EXPECT_TRUE(card.granted(holder));
  }
}

TEST(Arbiter, ASilentSliceIsForgottenAfterAWhile) {
  Contended card(1);
  card.page(0) = {.busy_ns = card.page(0).busy_ns};  // it no longer asks for a lease
  card.works[0] = false;
  const std::uint64_t silent = card.now;
  card.step(silent + Tuning{}.idle_forget - 1);
  EXPECT_EQ(card.mode(1), abi::LeaseMode::kLease);
  EXPECT_EQ(card.arbiter.next_step_ns(), silent + Tuning{}.idle_forget);
  card.step(silent + Tuning{}.idle_forget);
  EXPECT_EQ(card.mode(1), abi::LeaseMode::kSolo);
  EXPECT_EQ(card.arbiter.grant(1).credit_us, Tuning{}.solo_credit_us);
  EXPECT_EQ(card.arbiter.grant(1).end_ns, kNever);
}

TEST(Arbiter, StuckWorkIsRescuedNotBeforeRescueAfter) {
  for (const int stuck : {0, 1}) {
    Card card;
    const int worker = 1 - stuck;
    card.arbiter.add(burst(stuck == 0 ? 1 : 99));
    card.arbiter.add(burst(stuck == 0 ? 99 : 1));
    const auto at = [&](std::uint64_t now) {
      card.seen[static_cast<std::size_t>(worker)] = {.want = true, .busy = true, .inflight_ns = kMs, .busy_ns = now};
      card.step(now);
    };
    at(kMs);
    card.seen[static_cast<std::size_t>(stuck)] = {.busy_ns = 7};  // its last progress
    at(2 * kMs);
    card.seen[static_cast<std::size_t>(stuck)] = {.want = true, .busy = true, .inflight_ns = kMs, .busy_ns = 7};
    std::uint64_t first = 0;
    for (std::uint64_t now = 2 * kMs; now < 160 * kMs && first == 0; now += kMs) {
      at(now + kMs);
      if (card.mode(stuck) != abi::LeaseMode::kBlocked) first = card.now;
    }
    EXPECT_GT(first, 2 * kMs);
    EXPECT_LE(first, 2 * kMs + Tuning{}.rescue_after + Tuning{}.quantum + Tuning{}.drain_timeout + kMs);
  }
}

TEST(Arbiter, ASliceThatAsksAndDoesNothingIsPassedOverForAWhile) {
  for (const int idler : {0, 1}) {
    Workers card;
    card.add(burst(50));
    card.add(burst(50));
    card.works[static_cast<std::size_t>(idler)] = false;
    card.seen[static_cast<std::size_t>(idler)] = {.want = true};
    std::uint64_t left = 0, from = 0, to = 0;  // the end of its last lease; the first long gap
    while (card.now < 2'000 * kMs && to == 0) {
      const bool had = card.mode(idler) != abi::LeaseMode::kBlocked;
      card.play(Workers::kTick);
      const bool has = card.mode(idler) != abi::LeaseMode::kBlocked;
      if (had && !has) left = card.now;
      if (has && !had && card.now - left > 2 * Tuning{}.quantum) from = left, to = card.now;
    }
    const std::uint64_t turns = Tuning{}.unused_leases;
    EXPECT_GE(from, turns * Tuning{}.quantum) << "it got these turns like any other slice";
    EXPECT_LE(from, 2 * turns * (Tuning{}.quantum + kMs));
    EXPECT_NEAR(static_cast<double>(to - from), static_cast<double>(Tuning{}.pass_over),
                static_cast<double>(Tuning{}.quantum + Tuning{}.drain_timeout));
  }
}

TEST(Arbiter, ASleeperIsServedSoonAndTwoLeasesAheadAtMost) {
  Workers card;
  const int worker = card.add(burst(50));
  const int sleeper = card.add(burst(50));
  card.works[static_cast<std::size_t>(sleeper)] = false;
  card.play(1'000 * kMs);
  card.had.assign(kMaxSlices, 0);
  card.works[static_cast<std::size_t>(sleeper)] = true;
  card.play(20 * kMs);
  EXPECT_NEAR(card.part(sleeper, kMs), 20, 1) << "it is first";
  card.play(180 * kMs);
  EXPECT_NEAR(card.part(sleeper, kMs) - card.part(worker, kMs), 24, 12);
}

TEST(Arbiter, WorkInFlightIsBoundedByTheOtherSlicesOfTheCard) {
  const auto credit = [](abi::PriorityClass one, abi::PriorityClass other) {
    Workers card;
    card.add(burst(50, one));
    card.add(burst(50, other));
    card.seen[0] = {.want = true};
    card.works[1] = false;
    card.step(1);
    card.seen[1] = {.want = true, .busy = true, .inflight_ns = 1};
    card.step(2);
    while (card.mode(0) == abi::LeaseMode::kBlocked && card.now < 100 * kMs) {
      card.seen[1] = {};
      card.step(card.now + kMs);
    }
    return card.arbiter.grant(0).credit_us;
  };
  using abi::PriorityClass;
  EXPECT_EQ(credit(PriorityClass::kOffline, PriorityClass::kOnline), Tuning{}.offline_credit_us);
  EXPECT_EQ(credit(PriorityClass::kOffline, PriorityClass::kStandard), Tuning{}.credit_us);
  EXPECT_EQ(credit(PriorityClass::kStandard, PriorityClass::kOnline), Tuning{}.credit_us);
}

TEST(Arbiter, ASliceWithoutAGuaranteeIsServedBesideOthers) {
  Workers card;
  const int large = card.add(burst(100));
  const int small = card.add(burst(0));  // no dialect makes one, but a division by it would end every slice
  card.play(5'000 * kMs);
  EXPECT_GT(card.part(small, kMs), 0);
  EXPECT_GT(card.part(large, kMs), 9 * card.part(small, kMs));
}

TEST(Arbiter, TheRateIsThePromisedOne) {
  Card card;
  const int burstable = card.arbiter.add(burst(30));
  const int nothing = card.arbiter.add({0, abi::ShareClass::kBestEffort, abi::PriorityClass::kStandard});
  EXPECT_EQ(card.arbiter.grant(burstable).rate_ppm, 300'000U);
  const std::uint32_t epoch = card.arbiter.grant(burstable).epoch;
  card.step(1);
  EXPECT_EQ(card.arbiter.grant(burstable).rate_ppm, 300'000U);
  EXPECT_EQ(card.arbiter.grant(nothing).rate_ppm, 10'000U) << "never zero";
  card.arbiter.set_terms(burstable, burst(40));
  card.step(2);
  EXPECT_EQ(card.arbiter.grant(burstable).rate_ppm, 400'000U);
  card.arbiter.remove(burstable);
  ASSERT_EQ(card.arbiter.add(burst(10)), burstable);
  EXPECT_GT(card.arbiter.grant(burstable).epoch, epoch) << "the next slice with this number sees a change";
}

TEST(Arbiter, OverlapIsDividedBetweenProcessesAsTheHardwareDividesIt) {
  const auto charged = [](std::uint32_t processes, std::uint64_t joined_at) {
    Card card;
    const int many = card.arbiter.add(burst(30));
    const int one = card.arbiter.add(burst(70));
    card.seen[0] = {.busy = true, .inflight_ns = 900 * kMs, .edge_ns = 1, .processes = processes};
    card.step(1);
    card.seen[1] = {.busy = true, .inflight_ns = kMs, .edge_ns = joined_at, .processes = 1};
    card.step(100 * kMs + 1);
    return std::pair{card.arbiter.charged_ns(many), card.arbiter.charged_ns(one)};
  };
  EXPECT_EQ(charged(1, 0), std::pair(100 * kMs, 0 * kMs)) << "the begin of the other one is unknown";
  const auto [fifteen, one] = charged(15, 20 * kMs + 1);
  EXPECT_NEAR(static_cast<double>(fifteen), 95.0 * kMs, 10.0) << "20 ms alone, and 15 sixteenths of 80 ms";
  EXPECT_NEAR(static_cast<double>(one), 5.0 * kMs, 10.0);
  const auto [half, other_half] = charged(1, 20 * kMs + 1);
  EXPECT_NEAR(static_cast<double>(half), 60.0 * kMs, 10.0);
  EXPECT_NEAR(static_cast<double>(other_half), 40.0 * kMs, 10.0);
}

/// Returns the page contents of a slice with endless work in flight and a waiting launch.
Observation hung_page() { return {.want = true, .busy = true, .inflight_ns = kMs, .processes = 1}; }

/// Runs eight slices with endless work in flight and a waiting launch next to one slice that always works, for ten
/// seconds. Returns the part of the time in which the worker had the card, in percent, and the number of rescues.
std::pair<double, std::uint64_t> beside_hung(const Terms& worker, const Terms& hung) {
  Workers card;
  const int first = card.add(worker);
  std::vector<int> stuck;
  for (int i = 0; i < 8; ++i) {
    stuck.push_back(card.arbiter.add(hung));
    card.seen[static_cast<std::size_t>(stuck.back())] = hung_page();
  }
  card.play(10'000 * kMs);
  std::uint64_t rescues = 0;
  for (const int slice : stuck) rescues += card.arbiter.rescues(slice);
  return {100 * card.part(first, 10'000 * kMs), rescues};
}

TEST(Arbiter, RescuesTakeLittleAndFromAHigherClassLess) {
  using abi::PriorityClass;
  const Terms hung{0, abi::ShareClass::kBestEffort, PriorityClass::kOffline};
  const auto [online, few] = beside_hung(burst(70, PriorityClass::kOnline), hung);
  EXPECT_GE(online, 95);
  EXPECT_GE(few, 8U) << "each gets its first rescue";
  EXPECT_LE(few, 8U * 7U) << "after 0.1, 0.2, 0.4 s and so on";
  const auto [all, none] = beside_hung(burst(100, PriorityClass::kOnline), hung);
  EXPECT_EQ(none, 0U) << "it was promised the whole card";
  EXPECT_GE(all, 99);
}

TEST(Arbiter, ARescueIsShortBesideAHigherClassAndIsNotCutShort) {
  using abi::PriorityClass;
  Workers card;
  card.add(burst(70, PriorityClass::kOnline));
  const int stuck = card.arbiter.add(burst(30, PriorityClass::kOffline));
  card.seen[1] = hung_page();
  while (card.mode(stuck) == abi::LeaseMode::kBlocked && card.now < 1'000 * kMs) card.play(Workers::kTick);
  EXPECT_GE(card.now, Tuning{}.rescue_after);
  ASSERT_NE(card.mode(stuck), abi::LeaseMode::kBlocked);
  const std::uint64_t from = card.now;
  while (card.mode(stuck) != abi::LeaseMode::kBlocked) card.play(Workers::kTick);
  const auto lasted = static_cast<double>(card.now - from);
  EXPECT_NEAR(lasted, static_cast<double>(Tuning{}.outranked_rescue), 2.0 * Workers::kTick);
  EXPECT_EQ(card.mode(0), abi::LeaseMode::kLease) << "work that hung before delays nothing";
  EXPECT_EQ(card.arbiter.rescues(stuck), 1U);
  EXPECT_EQ(card.arbiter.rescues(0), 0U);
  card.arbiter.remove(stuck);
  ASSERT_EQ(card.arbiter.add(burst(30)), stuck);
  EXPECT_EQ(card.arbiter.rescues(stuck), 0U);
}

TEST(Arbiter, OfTwoStuckSlicesTheHigherClassIsRescuedFirst) {
  using abi::PriorityClass;
  Workers card;
  card.add(burst(40));
  const int offline = card.arbiter.add(burst(30, PriorityClass::kOffline));
  const int standard = card.arbiter.add(burst(1));
  for (const int slice : {offline, standard}) {
    card.seen[static_cast<std::size_t>(slice)] = hung_page();
  }
  while (card.arbiter.rescues(offline) + card.arbiter.rescues(standard) == 0 && card.now < 1'000 * kMs) {
    card.play(Workers::kTick);
  }
  EXPECT_EQ(card.arbiter.rescues(standard), 1U);
}

TEST(Observe, ProcessesOfASliceAreCombined) {
  auto page = std::make_unique<abi::AccountPage>();
  const auto says = [&](std::uint32_t entry, std::uint64_t inflight, std::uint64_t anchor) {
    page->entries[entry].inflight_ns.raw = inflight;
    page->entries[entry].anchor_ns.raw = anchor;
    page->entries[entry].busy.raw = inflight != 0 ? 1 : 0;
  };
  says(0, 5 * kMs, 101 * kMs);
  says(1, 3 * kMs, 102 * kMs);
  says(2, 0, 103 * kMs);
  Observation seen = observe(*page, 3, 100 * kMs, 104 * kMs);
  EXPECT_EQ(seen.processes, 2U);
  EXPECT_EQ(seen.inflight_ns, 6 * kMs) << "8 ms, of which the card has done 2";
  EXPECT_EQ(seen.edge_ns, 101 * kMs) << "the slice works since the first edge";
  seen = observe(*page, 3, 100 * kMs, 113 * kMs);
  EXPECT_EQ(seen.inflight_ns, 3 * kMs) << "3 ms late, expected to take as long again";
  says(0, 0, 101 * kMs);
  says(1, 0, 102 * kMs);
  seen = observe(*page, 3, 100 * kMs, 104 * kMs);
  EXPECT_EQ(seen.processes, 0U);
  EXPECT_EQ(seen.edge_ns, 103 * kMs) << "idle after the last edge";
  says(1, kMs, 99 * kMs);
  EXPECT_EQ(observe(*page, 3, 100 * kMs, 104 * kMs).edge_ns, 0U) << "it began before the previous step";
}

TEST(Observe, EveryWordOfThePageIsClamped) {
  auto page = std::make_unique<abi::AccountPage>();
  std::mt19937_64 random(1);
  auto* words = reinterpret_cast<std::uint64_t*>(page.get());
  for (int round = 0; round < 50; ++round) {
    for (std::size_t i = 0; i < sizeof *page / 8; ++i) words[i] = random();
    const Observation seen = observe(*page, abi::kAccountEntries, 100, 200);
    EXPECT_LE(seen.inflight_ns, kMostInflightNs);
    EXPECT_TRUE(seen.edge_ns == 0 || (seen.edge_ns >= 100 && seen.edge_ns <= 200));
  }
}

TEST(Observe, TheEntryCountIsNotTakenFromTheTenant) {
  auto page = std::make_unique<abi::AccountPage>();
  page->entries[1].want.raw = 1;
  page->entries[2].busy.raw = 1;
  for (const std::uint32_t said : {0U, 1U, 1024U, ~0U}) {
    page->high_entry.raw = said;
    const Observation seen = observe(*page, 2, 100, 200);
    EXPECT_TRUE(seen.want) << "with a bound of " << said;
    EXPECT_FALSE(seen.busy) << "an unassigned entry, with a bound of " << said;
  }
  EXPECT_TRUE(observe(*page, ~0U, 100, 200).busy) << "no more entries than a page has";
}

}  // namespace
}  // namespace carve::lease
