#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/mutex.h"
#include "core/model/slice.h"

namespace carve::agent {

/// One change at a time per owner. Callers of one owner get their turns in the order in which they arrived; different
/// owners do not wait for each other. A turn may be held across input and output. Safe from any thread.
class OwnerTurns {
 public:
  /// The permission to change the slices of one owner, until the object is destroyed. A function that changes a slice
  /// takes a reference to it as proof.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : turns_(other.turns_), owner_(std::move(other.owner_)) { other.turns_ = nullptr; }
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->end(owner_);
    }
    [[nodiscard]] const Owner& owner() const { return owner_; }

   private:
    friend class OwnerTurns;
    Turn(OwnerTurns* turns, Owner owner) : turns_(turns), owner_(std::move(owner)) {}
    OwnerTurns* turns_;
    Owner owner_;
  };

  /// Waits until all earlier callers for this owner have ended their turns.
  [[nodiscard]] Turn take(const Owner& owner) EXCLUDES(mutex_);
  /// nullopt: another caller has the turn, or waits for it.
  [[nodiscard]] std::optional<Turn> try_take(const Owner& owner) EXCLUDES(mutex_);
  /// The callers that wait for this owner's turn now.
  [[nodiscard]] std::uint64_t waiting(const Owner& owner) const EXCLUDES(mutex_);

 private:
  struct Line {
    std::uint64_t next = 0;  // ticket of the next caller
    std::uint64_t now = 0;   // ticket of the caller that has the turn
  };
  void end(const Owner& owner) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  Condition changed_;
  std::map<Owner, Line> lines_ GUARDED_BY(mutex_);  // of the owners with at least one caller
};

/// The owner of a local slice, and the turn that guards the name `id` of any slice.
[[nodiscard]] inline Owner local_owner(const std::string& id) { return {OwnerKind::kLocal, id}; }

}  // namespace carve::agent
