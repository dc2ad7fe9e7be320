// The arbiter's decisions on record, see base/testing/decisions.h. The other tests of the arbiter check rules.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/testing/decisions.h"
#include "lease/arbiter.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kMs = 1'000'000;

/// A process on the card: launches work of a random length when its slice may, pauses, and is sometimes stuck or wrong
/// about what it reports.
struct Tenant {
  Observation seen;
  std::uint64_t until = 0;  // end of its work, or of its pause
  bool liar = false;        // reports any times
  bool hangs = false;       // its work does not end until it may launch more
};

class Cast {
 public:
  /// Begins with `slices` slices and never has more than three others.
  Cast(std::uint64_t seed, std::size_t slices) : numbers_(seed), tenants_(slices + 3) {
    for (std::size_t i = 0; i < slices; ++i) add();
  }

  void play(int steps, Decisions& decisions) {
    for (int i = 0; i < steps; ++i) {
      pass_time();
      for (std::size_t slice = 0; slice < end(); ++slice) act(slice);
      change_slices();
      arbiter_.step(now_, observations().data());
      record(decisions);
    }
  }

 private:
  [[nodiscard]] std::size_t end() const { return static_cast<std::size_t>(arbiter_.slices_end()); }

  [[nodiscard]] std::size_t used() const {
    std::size_t count = 0;
    for (int slice = 0; slice < arbiter_.slices_end(); ++slice) count += arbiter_.is_used(slice) ? 1U : 0U;
    return count;
  }

  Terms terms() {
    constexpr std::array kShares = {abi::ShareClass::kFixed, abi::ShareClass::kBurst, abi::ShareClass::kBurst,
                                    abi::ShareClass::kBestEffort};
    constexpr std::array kPriorities = {abi::PriorityClass::kOnline, abi::PriorityClass::kStandard,
                                        abi::PriorityClass::kStandard, abi::PriorityClass::kOffline};
    Terms terms;
    terms.share = kShares[numbers_.below(kShares.size())];
    terms.priority = kPriorities[numbers_.below(kPriorities.size())];
    const auto compute = static_cast<std::uint32_t>(1 + numbers_.below(60));
    terms.compute = terms.share == abi::ShareClass::kBestEffort ? 0 : compute;
    const auto more = static_cast<std::uint32_t>(numbers_.below(101 - terms.compute));
    if (numbers_.one_of(3)) terms.ceiling = terms.compute + more;
    return terms;
  }

  void add() {
    const int slice = arbiter_.add(terms());
    Tenant& tenant = tenants_[static_cast<std::size_t>(slice)];
    tenant = {};
    tenant.liar = numbers_.one_of(6);
    tenant.hangs = numbers_.one_of(5);
  }

  // Mostly to the step that the arbiter asked for, or to an edge before it; sometimes later, and once in a while long
  // after it.
  void pass_time() {
    const std::uint64_t due = arbiter_.next_step_ns();
    const std::uint64_t edge = now_ + 20 * kUs + numbers_.below(4 * kMs);
    now_ = due > now_ && due < edge ? due : edge;
    if (numbers_.one_of(40)) now_ += numbers_.below(30 * kMs);
    if (numbers_.one_of(300)) now_ += numbers_.below(5'000 * kMs);
  }

  void act(std::size_t slice) {
    if (!arbiter_.is_used(static_cast<int>(slice))) return;
    Tenant& tenant = tenants_[slice];
    Observation& seen = tenant.seen;
    const bool may = arbiter_.grant(static_cast<int>(slice)).mode != abi::LeaseMode::kBlocked;
    if (seen.busy && now_ >= tenant.until && (!tenant.hangs || may)) {
      seen.busy = false;
      seen.edge_ns = numbers_.one_of(4) ? 0 : tenant.until;
      tenant.until = now_ + (numbers_.one_of(8) ? numbers_.below(60 * kMs) : numbers_.below(400 * kUs));
    } else if (!seen.busy && now_ >= tenant.until) {
      if (may) {
        seen.busy = true;
        seen.want = numbers_.one_of(3);
        seen.edge_ns = now_ - numbers_.below(20 * kUs);
        seen.processes = static_cast<std::uint32_t>(numbers_.below(4));
        tenant.until = now_ + 50 * kUs + numbers_.below(9 * kMs);
      } else {
        seen.want = true;
      }
    } else if (seen.busy && !may) {
      seen.want = tenant.hangs || numbers_.one_of(2);
    }
    seen.inflight_ns = seen.busy && tenant.until > now_ ? tenant.until - now_ : 0;
    const bool hangs = tenant.hangs && seen.busy && !may;  // it makes no progress
    if (!hangs && (seen.busy || numbers_.one_of(5))) seen.busy_ns += numbers_.below(3 * kMs);
    if (tenant.liar && numbers_.one_of(3)) {
      seen.busy_ns += numbers_.one_of(20) ? ~std::uint64_t{0} / 3 : numbers_.below(40 * kMs);
      seen.edge_ns = numbers_.below(2 * now_);
      seen.inflight_ns = numbers_.one_of(4) ? ~std::uint64_t{0} : numbers_.below(20 * kMs);
    }
  }

  void change_slices() {
    if (numbers_.one_of(60)) {
      const std::size_t slice = numbers_.below(end());
      if (arbiter_.is_used(static_cast<int>(slice))) arbiter_.remove(static_cast<int>(slice));
    }
    if (numbers_.one_of(40) && used() < tenants_.size()) add();
    if (numbers_.one_of(50)) {
      const std::size_t slice = numbers_.below(end());
      if (arbiter_.is_used(static_cast<int>(slice))) arbiter_.set_terms(static_cast<int>(slice), terms());
    }
  }

  std::vector<Observation> observations() {
    std::vector<Observation> all;
    for (const Tenant& tenant : tenants_) all.push_back(tenant.seen);
    all.resize(kMaxSlices);
    return all;
  }

  void record(Decisions& decisions) {
    decisions.add({now_, arbiter_.next_step_ns()});
    for (int slice = 0; slice < arbiter_.slices_end(); ++slice) {
      if (!arbiter_.is_used(slice)) continue;
      const Grant& grant = arbiter_.grant(slice);
      decisions.add({static_cast<std::uint64_t>(slice), static_cast<std::uint64_t>(grant.mode), grant.end_ns,
                     grant.credit_us, grant.rate_ppm, grant.epoch, arbiter_.charged_ns(slice), arbiter_.rescues(slice),
                     arbiter_.exhausted(slice) ? 1U : 0U});
    }
  }

  Numbers numbers_;
  std::vector<Tenant> tenants_;
  Arbiter arbiter_;
  std::uint64_t now_ = 1'000 * kMs;
};

TEST(ArbiterDecisions, AreThoseOnRecord) {
  const struct {
    std::size_t slices;
    std::uint64_t sum;
  } scenes[] = {
      {1, 0x0e830e7c6565122dULL},
      {2, 0x31aaee89a0ee547cULL},
      {3, 0xbfce1737863bf571ULL},
      {5, 0x7a87cc2bca21e423ULL},
      {9, 0xda499c3e39e5f387ULL}};
  for (const auto& [slices, sum] : scenes) {
    Decisions decisions("arbiter-" + std::to_string(slices));
    Cast(slices, slices).play(3'000, decisions);
    EXPECT_EQ(decisions.sum(), sum) << "with " << slices << " slices; see base/testing/decisions.h";
  }
}

}  // namespace
}  // namespace carve::lease
