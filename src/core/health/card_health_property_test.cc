// Random histories of a card: verdicts that must never occur, and recovery without a restart.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/health/card_health.h"

namespace carve {
namespace {

using std::chrono::seconds;

constexpr std::uint32_t kCodes[] = {13, 31, 45, 48, 58, 61, 63, 64, 79, 94, 109, 999};

template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(100, rc::gen::inRange<T>(low, high + 1));
}

const XidRow& row_of(std::uint32_t xid) { return built_in_xid_policy().row(xid); }

struct World {
  CardHealth card;
  Clock::Time now{seconds(1000)};
  bool tells_recovery = true;
  CardLook last{true, false, 0};
  bool away = false;

  void step() {
    now += std::chrono::milliseconds(pick(0, 20'000));
    switch (pick(0, 5)) {
      case 0: {
        const auto code = kCodes[pick<std::size_t>(0, std::size(kCodes) - 1)];
        card.saw_xid(code, row_of(code), now);
        break;
      }
      case 1:
        away = !away;
        card.driver_away(away ? "away" : "", now, away ? CardHealth::kAbsentGrace : Clock::Duration{});
        break;
      default:
        last = CardLook{pick(0, 5) != 0, pick(0, 5) == 0, std::nullopt};
        if (tells_recovery) last.recovery = pick(0, 2) == 0 ? pick(1U, 6U) : 0U;
        card.looked(last, now);
    }
  }
};

World random_world() {
  World world;
  world.tells_recovery = pick(0, 2) != 0;
  const int steps = pick(0, 40);
  for (int i = 0; i < steps; ++i) {
    world.step();
    const auto condition = world.card.condition(world.now);
    const auto health = world.card.health(world.now);
    RC_ASSERT(health.ok == (condition == CardCondition::kHealthy));
    RC_ASSERT(health.ok == health.reason.empty());
  }
  return world;
}

RC_GTEST_PROP(CardHealth, IsNeverHealthyWhileTheDriverReportsOtherwise, ()) {
  World world = random_world();
  world.card.looked(world.last, world.now);
  if (world.last.lost || !world.last.listed)
    RC_ASSERT(world.card.condition(world.now) == CardCondition::kLost);
  if (world.last.recovery.value_or(0) != 0) RC_ASSERT(!world.card.health(world.now).ok);
}

RC_GTEST_PROP(CardHealth, AnApplicationErrorNeverChangesTheVerdict, ()) {
  World world = random_world();
  const auto before = world.card.health(world.now);
  const auto held = world.card.held();
  for (const std::uint32_t code : {8U, 13U, 31U, 43U, 45U, 63U, 94U, 105U, 154U})
    world.card.saw_xid(code, row_of(code), world.now);
  RC_ASSERT(world.card.health(world.now) == before);
  RC_ASSERT(world.card.held() == held);
}

RC_GTEST_PROP(CardHealth, RecoversWithoutHelpWhenNoXidArrivesAndTheDriverRecommendsNothing, ()) {
  World world = random_world();
  world.card.driver_away("", world.now, {});
  if (!world.tells_recovery) {  // it has been away since then: the only way in which such a driver shows a reset
    world.now += seconds(1);
    world.card.looked({true, true, std::nullopt}, world.now);
  }
  for (int i = 0; i < 70; ++i) {
    world.now += seconds(1);
    world.card.looked({true, false, world.tells_recovery ? std::optional<std::uint32_t>(0) : std::nullopt}, world.now);
  }
  RC_ASSERT(world.card.health(world.now).ok);
  RC_ASSERT(world.card.held() == std::nullopt);
}

RC_GTEST_PROP(CardHealth, ARestartNeverForgetsACardThatNeedsAReset, ()) {
  World world = random_world();
  const auto held = world.card.held();
  CardHealth again;
  if (held) again.restore(*held, row_of(held->xid), world.now);
  const CardLook well{true, false, world.tells_recovery ? std::optional<std::uint32_t>(0) : std::nullopt};
  again.looked(well, world.now);
  RC_ASSERT(again.health(world.now).ok == !held.has_value());
}

}  // namespace
}  // namespace carve
