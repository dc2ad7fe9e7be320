#include "app/agent/agent.h"

// The cards' device files, if they belong to Carve (own-devices = on).
namespace carve {

/// Closes the files again, and reports an event if another program opened them. One caller at a time: restore(), then
/// the health thread.
void Agent::close_card_files() {
  if (world_.card_files == nullptr) return;
  std::vector<int> minors;
  {
    const std::lock_guard lock(state_);
    for (const auto& state : ledger_.cards()) {
      if (state.card.minor >= 0) minors.push_back(state.card.minor);
    }
  }
  const auto changed = world_.card_files->own(minors);
  const std::string error = changed ? std::string() : changed.error().what;
  bool news = false;
  {
    const std::lock_guard lock(state_);
    news = error != card_files_error_;
    card_files_error_ = error;
  }
  if (news && !error.empty()) note_event("device-file", "", error);
  for (const auto& path : changed ? *changed : std::vector<std::string>()) {
    note_event("device-file", "", path + " had another owner or mode; it is closed again (see `carve doctor`)");
  }
}

/// Creates missing nodes of every living slice, also for cards with a device file that has appeared since.
void Agent::give_card_files() {
  if (world_.card_files == nullptr) return;
  std::vector<std::string> ids;
  {
    const std::lock_guard lock(state_);
    for (const auto& [id, slice] : slices_) ids.push_back(id);
  }
  for (const auto& id : ids) {
    const std::lock_guard commit(commit_);
    SliceDevice device;
    {
      const std::lock_guard lock(state_);
      const auto found = slices_.find(id);
      if (found == slices_.end()) continue;
      device = device_of(found->second);
    }
    if (auto given = world_.card_files->give(id, device.user, device.minors); !given) {
      world_.log.error("a slice lacks its device files", {{"slice", id}, {"error", given.error().what}});
    }
  }
}

/// At the start: removes the nodes of slices that no longer exist.
void Agent::withdraw_card_files() {
  if (world_.card_files == nullptr) return;
  const auto ids = world_.card_files->list();
  for (const auto& id : ids ? *ids : std::vector<std::string>()) {
    {
      const std::lock_guard lock(state_);
      if (slices_.count(id) != 0) continue;
    }
    static_cast<void>(world_.card_files->withdraw(id));
  }
}

}  // namespace carve
