#include <algorithm>
#include <random>

#include "app/agent/agent.h"

// The start: cards, journal, cgroups and arbiter are reconciled.
namespace carve {
namespace {

/// Every part of every record as a slice, with the fields of its note.
std::vector<LiveSlice> slices_in(const JournalState& journal) {
  std::map<std::pair<Owner, std::string>, LiveSlice> noted;
  for (const auto& [id, text] : journal.notes) {
    LiveSlice slice;
    slice.id = id;
    slice.holder = {OwnerKind::kLocal, id};
    read_note(text, &slice);
    noted[{slice.holder, slice.part}] = std::move(slice);
  }
  std::vector<LiveSlice> slices;
  for (const auto& [owner, record] : journal.records) {
    for (const auto& held : slices_of(record)) {
      if (slices.empty() || slices.back().holder != owner || slices.back().part != held.part) {
        const auto note = noted.find({owner, held.part});
        LiveSlice slice = note != noted.end() ? note->second : LiveSlice();
        slice.holder = owner;
        slice.part = held.part;
        slice.epoch = record.epoch;
        if (slice.id.empty()) slice.id = owner.uid;  // a note is written with its record; only an old journal has none
        slices.push_back(std::move(slice));
      }
      slices.back().slices.push_back(held);
    }
  }
  return slices;
}

}  // namespace

Result<void> Agent::adopt_inventory() {
  auto inventory = world_.gpu.inventory();
  if (!inventory) return tl::unexpected(inventory.error());
  make_links(inventory->driver_version);
  const std::lock_guard lock(state_);
  const auto now = world_.clock.now();
  for (const auto& card : inventory->cards) {
    books_.stand_ins.erase(card.id);
    if (auto put = ledger_.put_card(card); !put) {
      world_.log.error("card is not used", {{"card", card.id.str()}, {"error", put.error().what}});
    }
  }
  books_.watch.listed(*inventory, now);
  books_.watch.driver(GpuState::kOk, "", now);
  inventory_ = with_missing(std::move(*inventory));
  books_.driver_known = true;
  books_.listed_at = now;
  static_cast<void>(apply_verdicts());
  return {};
}

/// A failed attempt is not repeated in every round: each attempt copies the library until the disk is full, and then
/// every other program that writes to the disk fails.
void Agent::make_links(const std::string& driver_version) {
  constexpr Clock::Duration kAgain = std::chrono::seconds(30);
  if (!config_.library_error.empty() || !world_.prepare_links) return;
  {
    const std::lock_guard lock(state_);
    const auto now = world_.clock.now();
    if (!links_error_.empty() && links_of_ == driver_version && now - links_tried_ < kAgain) return;
    links_of_ = driver_version;
    links_tried_ = now;
  }
  const auto made = world_.prepare_links(driver_version);
  const std::lock_guard lock(state_);
  links_error_ = made ? std::string() : made.error().what;
}

std::string Agent::library_error() const {
  return config_.library_error.empty() ? links_error_ : config_.library_error;
}

Result<void> Agent::restore_records() {
  const JournalState journal = world_.journal.state();
  const std::lock_guard lock(state_);
  std::map<CardId, Bytes> held_on;
  for (const auto& held : slices_of(journal)) held_on[held.card] += held.memory;
  for (auto& slice : slices_in(journal)) {
    slice.made = world_.clock.now();
    slice.restored = true;
    slice.joined = slice.keep;  // its pages are requested immediately, not only after it has settled
    for (const auto& held : slice.slices) {
      if (ledger_.find(held.card) != nullptr) continue;
      // The driver does not list the card now (or hangs), and the card is not remembered. The slice keeps its place on
      // a stand-in card, which is as large as the slices on it.
      Card stand_in;
      stand_in.id = held.card;
      stand_in.model = "unknown";
      stand_in.memory = std::max(held_on[held.card], Bytes::mib(1));
      books_.stand_ins.insert(held.card);
      stand_in.health = {false, "not listed by the driver since the agent started"};
      CARVE_TRY_VOID(ledger_.put_card(stand_in));
    }
    if (auto added = ledger_.add(slice.slices, Ledger::Admission::kRestored); !added) {
      return fail(Code::kDataLoss,
                  "the journal's slice " + slice.id + " does not fit: " + added.error().what);
    }
    slices_.emplace(slice.id, std::move(slice));
  }
  return {};
}

void Agent::publish_devices() {
  give_card_files();
  std::vector<SliceDevice> publish;
  {
    const std::lock_guard lock(state_);
    if (!books_.driver_known) return;  // the paths of the driver's files are unknown yet
    for (const auto& [id, slice] : slices_) {
      if (slice.keep && !slice.ending) publish.push_back(device_of(slice));
    }
  }
  for (const auto& device : publish) {
    const std::lock_guard commit(commit_);
    {
      // The slice may have ended since, and its device would not be withdrawn a second time.
      const std::lock_guard lock(state_);
      const auto found = slices_.find(device.id);
      if (found == slices_.end() || found->second.ending) continue;
    }
    if (auto done = world_.devices.publish(device); !done) {
      world_.log.error("device is not published", {{"slice", device.id}, {"error", done.error().what}});
    }
  }
}

Result<void> Agent::restore() {
  {
    std::random_device random;
    const std::lock_guard lock(state_);
    run_number_ = static_cast<std::uint32_t>(random());
  }
  recall_cards();
  if (auto cards = adopt_inventory(); !cards) {
    world_.log.warn("cards are not known yet", {{"reason", cards.error().what}});
  } else {
    inventory_stale_ = false;
  }
  CARVE_TRY_VOID(restore_records());
  judge_cards({});
  close_card_files();
  withdraw_card_files();
  // Processes without a record would use a card that was not granted to them.
  if (world_.cgroups != nullptr) {
    CARVE_TRY(const auto groups, world_.cgroups->list());
    for (const auto& id : groups) {
      const auto populated = world_.cgroups->populated(id);
      const auto ran = world_.cgroups->has_run(id);
      const std::lock_guard commit(commit_);
      bool known = false;
      {
        const std::lock_guard lock(state_);
        const auto found = slices_.find(id);
        known = found != slices_.end();
        // The cgroup is empty and no process has run in it: the agent ended after it created the cgroup and before the
        // process joined. The process may still join, within rejoin_time.
        if (known) found->second.joined = (populated && *populated) || ran.value_or(true);
      }
      if (known) {
        static_cast<void>(
            world_.cgroups->freeze(id, false));  // an earlier agent may have died while it throttled
        continue;
      }
      if (populated && *populated) {
        world_.log.error("processes in a cgroup of ours without a record are ended", {{"cgroup", id}});
        static_cast<void>(world_.cgroups->kill(id));
        const std::lock_guard lock(state_);
        events_.push_back({0, "no-record", id, "its processes had no record in the journal and were ended"});
      }
      static_cast<void>(world_.cgroups->remove(id));
    }
  }
  const auto devices = world_.devices.list();
  std::vector<std::string> withdraw;
  {
    const std::lock_guard lock(state_);
    for (const auto& id : devices ? *devices : std::vector<std::string>()) {
      const auto found = slices_.find(id);
      if (found == slices_.end() || !found->second.keep || found->second.ending) withdraw.push_back(id);
    }
  }
  for (const auto& id : withdraw) static_cast<void>(world_.devices.withdraw(id));
  publish_devices();
  thaw_containers();
  reap();
  static_cast<void>(look_at_pages());
  return {};
}

void Agent::reconcile_pages(const std::vector<PageSlice>& present) {
  const std::lock_guard commit(commit_);
  std::vector<std::string> drop;
  std::vector<PageOrder> put;
  {
    const std::lock_guard lock(state_);
    for (const auto& pages : present) {
      const auto found = slices_.find(pages.id);
      if (found == slices_.end() || found->second.whole()) drop.push_back(pages.id);
    }
    for (const auto& [id, slice] : slices_) {
      // Remains do not count: put() re-creates the pages.
      const bool there =
          std::any_of(present.begin(), present.end(), [&id = id](const auto& p) { return p.id == id && !p.remains; });
      const bool ours = put_.count(id) != 0;
      // Created while the list was read: the pages exist by now.
      const bool fresh = world_.clock.now() - slice.made < std::chrono::seconds(1) && !slice.joined;
      const bool revoked = world_.clock.now() < slice.revoked_until;
      if ((!there || !ours) && !fresh && !slice.whole() && !revoked) put.push_back(order_of(slice));
    }
  }
  for (const auto& id : drop) static_cast<void>(world_.pages.drop(id));
  for (const auto& order : put) {
    // The arbiter keeps the pages that it has. The agent receives the duplicates that a restarted arbiter will need.
    const auto done = world_.pages.put(order);
    if (done) put_.insert(order.id);
    world_.log.info("pages asked for again", {{"slice", order.id}, {"ok", done.has_value()}});
  }
}

}  // namespace carve
