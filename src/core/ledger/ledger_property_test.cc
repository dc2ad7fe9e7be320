// Random histories against invariants 1, 2 and 4 of the model: the ledger is the sum of its slices and never exceeds
// the card; a refused call changes nothing, and a slice that fits is not refused; the identity is (owner, part). The
// model of this test adds up slices in its own way, from a plain list.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "core/ledger/ledger.h"

namespace carve {
namespace {

constexpr int kCards = 3;
constexpr std::uint64_t kCardGib = 8;

Ledger empty_ledger() {
  Ledger ledger;
  for (int i = 0; i < kCards; ++i) {
    Card card;
    card.id = CardId("GPU-" + std::to_string(i));
    card.memory = Bytes::gib(kCardGib);
    RC_ASSERT(ledger.put_card(card).has_value());
  }
  return ledger;
}

// rapidcheck's ranges shrink with the size of the case, so probabilities are written as "one of n equal draws".
bool one_in(int n) { return *rc::gen::resize(100, rc::gen::inRange(0, n)) == n - 1; }
template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(100, rc::gen::inRange<T>(low, high + 1));
}

Slice arbitrary_slice(const Owner& owner, const std::string& part) {
  Slice slice;
  slice.owner = owner;
  slice.part = part;
  slice.card = CardId("GPU-" + std::to_string(pick(0, kCards - 1)));
  slice.memory = Bytes::mib(pick<std::uint64_t>(1, kCardGib * 512));
  slice.compute = CoreShare(pick<std::uint32_t>(1, 60));
  slice.share = *rc::gen::element(ShareClass::kFixed, ShareClass::kBurst, ShareClass::kBestEffort);
  slice.phase = one_in(4) ? Phase::kInit : Phase::kRun;
  if (one_in(12)) {
    slice.exclusive = slice.whole = true;
    slice.memory = Bytes::gib(kCardGib);
    slice.compute = CoreShare::whole();
    slice.share = ShareClass::kBurst;
  }
  return slice;
}

/// The sum of these slices on a card, computed from the rule: per owner, the larger of the largest init part and the
/// sum of the run parts. An exclusive slice excludes other owners, and other parts of its own phase.
bool model_fits(const std::vector<Slice>& all, const CardId& card) {
  std::map<Owner, std::uint64_t> run_memory, init_memory;
  std::map<Owner, unsigned> run_compute, init_compute;
  std::vector<Slice> here;
  for (const Slice& s : all) {
    if (s.card == card) here.push_back(s);
  }
  for (const Slice& s : here) {
    const unsigned guarantee = s.share == ShareClass::kBestEffort ? 0 : s.compute.hundredths();
    if (s.phase == Phase::kRun) {
      run_memory[s.owner] += s.memory.count();
      run_compute[s.owner] += guarantee;
    } else {
      init_memory[s.owner] = std::max(init_memory[s.owner], s.memory.count());
      init_compute[s.owner] = std::max(init_compute[s.owner], guarantee);
    }
    for (const Slice& other : here) {
      const bool same = other.owner == s.owner && other.part == s.part;
      if (s.exclusive && !same && (other.owner != s.owner || other.phase == s.phase)) return false;
    }
  }
  std::uint64_t memory = 0;
  unsigned compute = 0;
  std::map<Owner, bool> owners;
  for (const Slice& s : here) owners[s.owner] = true;
  for (const auto& [owner, present] : owners) {
    memory += std::max(run_memory[owner], init_memory[owner]);
    compute += std::max(run_compute[owner], init_compute[owner]);
  }
  return memory <= kCardGib << 30 && compute <= 100;
}

bool model_fits(const std::vector<Slice>& all) {
  for (int i = 0; i < kCards; ++i) {
    if (!model_fits(all, CardId("GPU-" + std::to_string(i)))) return false;
  }
  return true;
}

bool has_twice(const std::vector<Slice>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (all[i].owner == all[j].owner && all[i].part == all[j].part &&
          all[i].card == all[j].card) {
        return true;
      }
    }
  }
  return false;
}

std::vector<Slice> without(std::vector<Slice> all, const Owner& owner, const std::string* part) {
  std::erase_if(all, [&](const Slice& s) {
    return s.owner == owner && (part == nullptr || s.part == *part);
  });
  return all;
}

void sort(std::vector<Slice>& slices) {
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return std::tie(a.card, a.owner, a.part) < std::tie(b.card, b.owner, b.part);
  });
}

struct Counts {
  int booked = 0;
  int refused = 0;
};

/// Applies one step to the ledger and to the plain list; both must agree.
void step(Ledger& ledger, std::vector<Slice>& model, Counts& counts) {
  const Owner owner{*rc::gen::element(OwnerKind::kPod, OwnerKind::kLocal),
                    "u" + std::to_string(pick(0, 3))};
  const std::string part = "p" + std::to_string(pick(0, 2));
  const Ledger before = ledger;
  const int what = pick(0, 9);
  if (what < 6) {  // adds or replaces some slices of one part
    const bool replace = what >= 4;
    std::vector<Slice> slices;
    const int n = pick(replace ? 0 : 1, 3);
    for (int i = 0; i < n; ++i) slices.push_back(arbitrary_slice(owner, part));
    std::vector<Slice> next = replace ? without(model, owner, &part) : model;
    next.insert(next.end(), slices.begin(), slices.end());
    const bool possible = !has_twice(next) && model_fits(next);
    const auto done = replace ? ledger.replace(owner, part, slices) : ledger.add(slices);
    RC_ASSERT(done.has_value() == possible);
    if (done) {
      model = next;
      ++counts.booked;
    } else {
      RC_ASSERT(ledger == before);
      RC_ASSERT(!done.error().what.empty());
      ++counts.refused;
    }
  } else if (what < 9) {
    const std::vector<Slice> next = without(model, owner, &part);
    RC_ASSERT(ledger.remove(owner, part).has_value() == (next.size() != model.size()));
    model = next;
  } else {
    const std::vector<Slice> next = without(model, owner, nullptr);
    RC_ASSERT(ledger.remove_owner(owner) == model.size() - next.size());
    model = next;
  }
}

RC_GTEST_PROP(LedgerHistory, IsTheSumOfItsSlicesAndNeverAboveTheCardAtAnyStep, ()) {
  Ledger ledger = empty_ledger();
  std::vector<Slice> model;
  Counts counts;
  for (int i = 0; i < 60; ++i) {
    step(ledger, model, counts);
    RC_ASSERT(ledger.audit().has_value());
    std::vector<Slice> held = ledger.slices();
    sort(held);
    sort(model);
    RC_ASSERT(held == model);
    RC_ASSERT(model_fits(held));
  }
  RC_CLASSIFY(counts.booked >= 5 && counts.refused >= 5, "at least 5 booked and 5 refused");
}

RC_GTEST_PROP(LedgerHistory, TheSameSlicesInAnotherOrderAreTheSameLedger, ()) {
  Ledger ledger = empty_ledger();
  std::vector<Slice> model;
  Counts counts;
  for (int i = 0; i < 30; ++i) step(ledger, model, counts);
  // A restart reads the slices back in any order, in one call or one by one.
  Ledger all_at_once = empty_ledger();
  std::reverse(model.begin(), model.end());
  RC_ASSERT(all_at_once.add(model, Ledger::Admission::kRestored).has_value());
  RC_ASSERT(all_at_once == ledger);
  Ledger one_by_one = empty_ledger();
  std::rotate(model.begin(), model.begin() + static_cast<long>(model.size() / 2), model.end());
  for (const Slice& slice : model) {
    RC_ASSERT(one_by_one.add({slice}, Ledger::Admission::kRestored).has_value());
  }
  RC_ASSERT(one_by_one == ledger);
}

}  // namespace
}  // namespace carve
