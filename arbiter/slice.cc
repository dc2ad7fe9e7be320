#include "arbiter/slice.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "arbiter/wire.h"
#include "core/model/request.h"
#include "core/model/slice.h"
#include "lease/memory_account.h"

namespace carve::arbiter {
namespace {

// The ledgers of agent and control refuse slices that do not fit into the arbiter's tables.
static_assert(lease::kMaxSlices == kMaxSlicesPerCard);
static_assert(abi::kMaxCardsPerSlice == kMaxCardsPerRequest);

lease::Terms terms_of(const abi::ControlCard& card) {
  return {card.compute, card.share, card.priority, card.ceiling == 0 ? 100 : card.ceiling};
}

void write_header(abi::AccountPage& page) {
  page.magic = abi::kAccountMagic;
  page.abi = abi::kPageAbi;
}

Fd pin(std::int32_t pid) { return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> counter = now_ns();
  return ++counter;
}

}  // namespace

Result<CardLoop*> Cards::of(const std::string& uuid) {
  auto& loop = loops_[uuid];
  if (!loop) {
    auto started = CardLoop::start(uuid, trace_prefix_.empty() ? "" : trace_prefix_ + "." + uuid, log_);
    if (!started) {
      loops_.erase(uuid);
      return tl::unexpected(started.error());
    }
    loop = std::move(*started);
  }
  return loop.get();
}

Result<std::unique_ptr<Slice>> Slice::open(const Shared& shared, Closer closer, const abi::ControlRequest& order,
                                           Descriptors kept) {
  std::unique_ptr<Slice> slice(new Slice(shared, std::move(closer), order.id));
  const bool taken_over = !kept.accounts.empty();
  for (std::uint32_t i = 0; i < order.card_count; ++i) {
    CARVE_TRY_VOID(slice->open_card(shared.cards, order.cards[i], taken_over ? std::move(kept.accounts[i]) : Fd()));
  }
  CARVE_TRY_VOID(slice->listen(shared.slices_folder, order.in_private_folder != 0, std::move(kept.listener)));
  if (taken_over) {
    slice->take_stock_over();
    slice->take_members_over(kept.processes);
  } else {
    shared.lifelines.remove_all(order.id);
  }
  slice->refresh_headers();
  return slice;
}

Slice::~Slice() {
  for (Card& card : cards_) {
    if (card.loop && card.number >= 0) card.loop->remove(card.number);
  }
  closer_.take(std::move(listener_));
}

Result<void> Slice::open_card(Cards& cards, const abi::ControlCard& order, Fd kept) {
  Card card;
  card.name = fmt::format("{}-{}", id_, cards_.size());
  card.uuid = order.uuid;
  const bool fresh = !kept;
  if (fresh) files_.remove(card.name);  // of an earlier slice with this name; its clients keep their mappings
  CARVE_TRY(card.account, fresh ? PageFiles::make_account(card.name) : PageFiles::map_account(std::move(kept)));
  CARVE_TRY(card.grant, files_.grant(card.name));
  abi::GrantPage& page = *card.grant;
  if (page.magic != abi::kGrantMagic) {
    page.abi = abi::kPageAbi;
    std::memcpy(page.card_uuid, order.uuid, sizeof page.card_uuid);
    page.page_generation = next_generation();
    page.clock = abi::PageClock::kMonotonic;
    page.magic = abi::kGrantMagic;
  }
  page.account_inode = card.account.inode;
  page.share_class = order.share;
  page.priority_class = order.priority;
  page.context_bytes = order.context_bytes;
  page.memory_limit.store_relaxed(order.memory_limit);
  page.stock_epoch.fetch_add(1);  // the limit may be lower than an earlier arbiter's
  page.compute_limit.store_relaxed(order.compute);
  page.compute_ceiling.store_relaxed(order.ceiling);
  page.revoked.store_relaxed(0);
  page.heartbeat_ns.store_release(now_ns());
  write_header(*card.account.page);
  CARVE_TRY(card.loop, cards.of(card.uuid));
  CARVE_TRY(card.number, card.loop->add(card.grant.get(), card.account.page.get(), terms_of(order)));
  cards_.push_back(std::move(card));
  return {};
}

Result<void> Slice::listen(const std::string& slices_folder, bool in_private_folder, Fd kept) {
  folder_ = slices_folder + "/" + id_;
  if (in_private_folder) {
    outer_ = folder_;
    folder_ += "/" + id_;
  }
  if (kept) {
    listener_ = std::move(kept);
    return {};
  }
  // The agent may have created the folder already, and given its user access.
  if (in_private_folder && mkdir(outer_.c_str(), 0700) != 0 && errno != EEXIST) {
    return tl::unexpected(errno_error(errno, "create " + outer_));
  }
  if (mkdir(folder_.c_str(), 0755) != 0 && errno != EEXIST) {
    return tl::unexpected(errno_error(errno, "create " + folder_));
  }
  unlink((folder_ + "/s").c_str());
  CARVE_TRY(listener_, listen_at(folder_ + "/s", 0666));
  return {};
}

// Takes over the processes that were registered before the arbiter restarted, by their lifelines. The account page
// names PIDs too, but the tenant can write them.
void Slice::take_members_over(const std::set<std::int32_t>& processes) {
  const auto lifelines = lifelines_.of(id_);
  for (const auto& lifeline : lifelines) {
    Fd pidfd = pin(lifeline.pid);
    // Another process may have the PID now.
    const bool dead = pidfd ? identity_of(pidfd) != lifeline.process : errno == ESRCH;
    if (dead) pidfd.reset();
    Member member{std::move(pidfd), lifeline.pid, lifeline, dead};
    if (lifeline.entry >= abi::kAccountEntries || in_stock(lifeline.entry) || ended(member)) {
      lifelines_.remove(lifeline);
    } else {
      members_[lifeline.entry] = std::move(member);
    }
  }
  for (std::uint32_t i = 0; i < abi::kAccountEntries; ++i) {
    if (in_stock(i) || members_.contains(i)) continue;
    const abi::AccountEntry& entry = cards_[0].account.page->entries[i];
    const auto pid = static_cast<std::int32_t>(entry.host_pid.load_relaxed() & 0x7fffffff);
    if (pid == 0 && entry.used_bytes.load_relaxed() == 0 && entry.instance.load_relaxed() == 0) continue;
    // An arbiter without lifelines registered it if the slice has none.
    Fd pidfd = pin(pid);
    auto lifeline = lifelines.empty() && processes.contains(pid)
                        ? lifelines_.make(id_, i, pid, pidfd, false)
                        : fail(Code::kNotFound, "not registered");
    if (lifeline) {
      members_[i] = {std::move(pidfd), pid, std::move(*lifeline), false};
    } else {
      empty_entry(i);
    }
  }
}

Result<void> Slice::set_limits(const abi::ControlRequest& order) {
  bool same = order.card_count == cards_.size();
  for (std::size_t i = 0; same && i < cards_.size(); ++i) same = cards_[i].uuid == order.cards[i].uuid;
  if (!same) return fail(Code::kFailedPrecondition, fmt::format("slice {}: exists on other cards", id_));
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    const abi::ControlCard& wanted = order.cards[i];
    abi::GrantPage& page = *cards_[i].grant;
    const bool lowered = wanted.memory_limit < page.memory_limit.load_relaxed();
    page.memory_limit.store_relaxed(wanted.memory_limit);
    if (lowered) page.stock_epoch.fetch_add(1);
    page.context_bytes = wanted.context_bytes;
    const bool terms = page.compute_limit.load_relaxed() != wanted.compute || page.share_class != wanted.share ||
                       page.priority_class != wanted.priority ||
                       page.compute_ceiling.load_relaxed() != wanted.ceiling;
    if (!terms) continue;
    page.share_class = wanted.share;
    page.priority_class = wanted.priority;
    page.compute_ceiling.store_relaxed(wanted.ceiling);
    page.compute_limit.store_release(wanted.compute);
    cards_[i].loop->set_terms(cards_[i].number, terms_of(wanted));
  }
  return {};
}

Result<void> Slice::set_overhead(std::uint32_t card, std::uint64_t bytes) {
  if (card >= cards_.size()) {
    return fail(Code::kInvalidArgument, fmt::format("card_index: {} of a slice of {} cards", card, cards_.size()));
  }
  abi::GrantPage& page = *cards_[card].grant;
  const bool raised = bytes > page.overhead_bytes.load_relaxed();
  page.overhead_bytes.store_relaxed(bytes);
  if (raised) page.stock_epoch.fetch_add(1);
  return {};
}

bool Slice::ended(const Member& member) const {
  return member.lifeline.sent ? lifelines_.state(member.lifeline) == Lifelines::State::kFree : member.dead;
}

void Slice::free_replaced(std::int32_t pid) {
  std::vector<std::uint32_t> replaced;
  for (const auto& [held, member] : members_) {
    if (member.pid == pid && ended(member)) replaced.push_back(held);
  }
  for (const std::uint32_t held : replaced) free_entry(held);
}

Result<Slice::Place> Slice::take_entry(std::int32_t pid, Fd pidfd, bool takes_lifeline) {
  Place place{};
  while (members_.contains(place.entry) || in_stock(place.entry)) ++place.entry;
  if (place.entry >= abi::kAccountEntries) return fail(Code::kResourceExhausted, "no account entry is free");
  CARVE_TRY(auto lifeline, lifelines_.make(id_, place.entry, pid, pidfd, takes_lifeline));
  if (lifeline.sent) {
    auto held = lifelines_.tenant_descriptor(lifeline);
    if (!held) lifelines_.remove(lifeline);
    CARVE_TRY(place.lifeline, std::move(held));
  }
  empty_entry(place.entry);
  members_[place.entry] = {std::move(pidfd), pid, std::move(lifeline), false};
  for (Card& card : cards_) {
    card.account.page->entries[place.entry].host_pid.store_release(static_cast<std::uint64_t>(pid));
  }
  refresh_headers();
  return place;
}

void Slice::process_died(std::uint32_t entry) {
  const auto found = members_.find(entry);
  if (found == members_.end()) return;  // reported twice in one round
  Member& member = found->second;
  member.dead = true;
  member.pidfd.reset();
  if (ended(member)) free_entry(entry);
}

void Slice::free_entry(std::uint32_t entry) {
  const auto found = members_.find(entry);
  if (found == members_.end()) return;
  lifelines_.remove(found->second.lifeline);
  members_.erase(found);
  empty_entry(entry);
  refresh_headers();
}

// Also empties the stock entries of its threads. They count as long as the process's own entry, and after the death of
// the process as long as its heirs hold the memory.
void Slice::empty_entry(std::uint32_t entry) {
  for (Card& card : cards_) {
    card.loop->empty_entry(card.number, entry);
    for (std::uint32_t i = stock_first_; i < stock_first_ + stock_count_; ++i) {
      if (card.account.page->entries[i].instance.load_acquire() == entry + 1) card.loop->empty_entry(card.number, i);
    }
  }
}

bool Slice::in_stock(std::uint32_t entry) const { return entry >= stock_first_ && entry < stock_first_ + stock_count_; }

void Slice::forbid_stock() {
  for (Card& card : cards_) {
    card.grant->stock_off.store_seq_cst(1);
    lease::MemoryAccount::collect_stock(*card.grant, *card.account.page);
  }
}

// The stock entries as the grant page names them, which only the arbiter writes. A page of ABI 1 may have processes
// with a library of ABI 1.
void Slice::take_stock_over() {
  for (const Card& card : cards_) {
    const std::uint32_t first = card.grant->stock_first.load_relaxed();
    const std::uint32_t count = card.grant->stock_count.load_relaxed();
    if (count == 0 || count > abi::kStockEntries || first > abi::kAccountEntries - count) continue;
    stock_first_ = first;
    stock_count_ = count;
  }
  for (const Card& card : cards_) {
    if (card.grant->abi < abi::kStockAbi) card.grant->stock_off.store_seq_cst(1);
    if (stock_count_ == 0) continue;
    card.grant->stock_first.store_relaxed(stock_first_);  // the arbiter died between two cards
    card.grant->stock_count.store_seq_cst(stock_count_);
  }
}

void Slice::look_at_stock() {
  if (cards_[0].grant->stock_off.load_relaxed() != 0) {
    // A free may have left a stock at the moment when the stock was forbidden.
    for (Card& card : cards_) lease::MemoryAccount::collect_stock(*card.grant, *card.account.page);
    return;
  }
  const auto wanted = [](const Card& card) { return card.account.page->stock_wanted.load_relaxed() != 0; };
  if (stock_count_ != 0 || members_.empty() || !std::any_of(cards_.begin(), cards_.end(), wanted)) return;
  // The lowest free block, because the upper end bounds the cost of all sums.
  std::uint32_t first = 0;
  for (auto next = members_.begin(); next != members_.end() && next->first < first + abi::kStockEntries; ++next) {
    first = next->first + 1;
  }
  if (first > abi::kAccountEntries - abi::kStockEntries) return;
  stock_first_ = first;
  stock_count_ = abi::kStockEntries;
  for (std::uint32_t i = first; i < first + stock_count_; ++i) empty_entry(i);
  refresh_headers();  // before a process can announce anything there: every sum must include it
  for (Card& card : cards_) {
    card.grant->stock_first.store_relaxed(first);
    card.grant->stock_count.store_seq_cst(stock_count_);
  }
}

void Slice::look_around() {
  look_at_members();
  look_at_stock();
}

void Slice::look_at_members() {
  constexpr int kAtOnce = 32;
  for (int looked = 0; looked < kAtOnce && !members_.empty(); ++looked) {
    auto next = members_.upper_bound(last_looked_at_);
    if (next == members_.end()) next = members_.begin();
    if (looked > 0 && next->first <= last_looked_at_) return;  // all were checked
    last_looked_at_ = next->first;
    Member& member = next->second;
    if (!member.dead && !member.pidfd) member.pidfd = pin(member.pid);
    if (ended(member)) free_entry(last_looked_at_);
  }
}

// Rewritten each time, because a tenant may have overwritten them and other processes of the slice need them.
void Slice::refresh_headers() {
  const std::uint32_t end = std::max(members_.empty() ? 0 : members_.rbegin()->first + 1, stock_first_ + stock_count_);
  for (Card& card : cards_) {
    write_header(*card.account.page);
    card.account.page->high_entry.store_seq_cst(end);
    card.grant->high_entry.store_seq_cst(end);
  }
}

Result<std::vector<Fd>> Slice::tenant_descriptors(abi::LibraryKind kind) const {
  std::vector<Fd> fds;
  for (const Card& card : cards_) {
    CARVE_TRY(Fd grant, files_.tenant_descriptor(card.name));
    fds.push_back(std::move(grant));
    const std::string own = fmt::format("/proc/self/fd/{}", card.account.fd.get());
    Fd account(kind == abi::LibraryKind::kCuda ? fcntl(card.account.fd.get(), F_DUPFD_CLOEXEC, 0)
                                               : ::open(own.c_str(), O_RDONLY | O_CLOEXEC));
    if (!account) return tl::unexpected(errno_error(errno, "duplicate account page of " + id_));
    fds.push_back(std::move(account));
  }
  return fds;
}

void Slice::describe(abi::ControlList* list) {
  abi::ControlReply* const out = &list->reply;
  std::memcpy(out->id, id_.c_str(), id_.size() + 1);
  out->card_count = static_cast<std::uint32_t>(cards_.size());
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    abi::ControlCardState& state = out->cards[i];
    std::memcpy(state.uuid, cards_[i].uuid.c_str(), std::min(cards_[i].uuid.size() + 1, sizeof state.uuid - 1));
    for (const auto& [entry, member] : members_) {
      const abi::AccountEntry& s = cards_[i].account.page->entries[entry];
      const std::uint64_t contexts = s.context_bytes.load_relaxed();
      state.announced_bytes += s.used_bytes.load_relaxed();
      const std::uint64_t each = cards_[i].grant->context_bytes;
      state.contexts += each == 0 ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(contexts / each, 1024));
    }
    for (std::uint32_t entry = stock_first_; entry < stock_first_ + stock_count_; ++entry) {
      state.announced_bytes += abi::stock_in_use(cards_[i].account.page->entries[entry].used_bytes.load_relaxed());
    }
    state.busy_ns = cards_[i].loop->busy_ns(cards_[i].number);
    state.charged_ns = cards_[i].loop->charged_ns(cards_[i].number);
    state.rescues = cards_[i].loop->rescues(cards_[i].number);
    out->late[i] = cards_[i].loop->lease_time(cards_[i].number);
    cards_[i].loop->describe(cards_[i].number, &list->counters[i]);
  }
  for (const auto& [entry, member] : members_) {
    if (!member.dead) out->pids[out->pid_count++] = member.pid;
  }
}

void Slice::revoke() {
  revoked_ = true;
  unlink((folder_ + "/s").c_str());
  rmdir(folder_.c_str());
  if (!outer_.empty()) rmdir(outer_.c_str());
  // Refuses new connections, and accepts and closes the waiting ones here. Otherwise they would all be closed in the
  // agent, when it closes the last duplicate of the listener.
  shutdown(listener_.get(), SHUT_RDWR);
  for (;;) {
    Fd waiting(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!waiting) break;
    closer_.take(std::move(waiting));
  }
  // Before the pages, by which the next arbiter knows the slice.
  for (const auto& [entry, member] : members_) lifelines_.remove(member.lifeline);
  for (Card& card : cards_) {
    card.grant->revoked.store_release(1);
    card.loop->remove(card.number);
    card.number = -1;
    files_.remove(card.name);
  }
}

void Slice::remove_remains(const Shared& shared, const std::string& id) {
  const std::string outer = shared.slices_folder + "/" + id;
  for (const std::string& folder : {outer + "/" + id, outer}) {  // in a private folder or not
    unlink((folder + "/s").c_str());
    rmdir(folder.c_str());
  }
  shared.lifelines.remove_all(id);
  for (std::size_t i = 0; i < abi::kMaxCardsPerSlice; ++i) {
    const std::string name = fmt::format("{}-{}", id, i);
    if (!shared.files.exists(name)) continue;
    auto page = shared.files.grant(name);
    if (page && (*page)->magic == abi::kGrantMagic) (*page)->revoked.store_release(1);
    shared.files.remove(name);
  }
}

std::vector<int> Slice::kept_descriptors() const {
  std::vector<int> fds;
  for (const Card& card : cards_) fds.push_back(card.account.fd.get());
  fds.push_back(listener_.get());
  return fds;
}

}  // namespace carve::arbiter
