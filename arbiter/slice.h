#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "abi/control.h"
#include "abi/hello.h"
#include "arbiter/card.h"
#include "arbiter/closer.h"
#include "arbiter/lifelines.h"
#include "arbiter/page_files.h"
#include "base/fd.h"
#include "base/result.h"

namespace carve::arbiter {

/// The loops of all cards, by UUID. A loop is created when it is first needed.
class Cards {
 public:
  Cards(std::string trace_prefix, Log& log) : trace_prefix_(std::move(trace_prefix)), log_(log) {}
  Result<CardLoop*> of(const std::string& uuid);

 private:
  std::string trace_prefix_;
  Log& log_;
  std::map<std::string, std::unique_ptr<CardLoop>> loops_;
};

/// A slice in the arbiter: a pair of pages per card, one socket, and the process of each account entry. Only the
/// server's thread calls functions of this class.
class Slice {
 public:
  struct Descriptors {
    std::vector<Fd> accounts;  // one per card, or empty: new ones are created
    Fd listener;               // or none: a new one is created
    std::set<std::int32_t> processes;  // that map the first account page for writing, as far as that is known
  };
  /// What all slices share.
  struct Shared {
    PageFiles& files;
    const Lifelines& lifelines;
    Cards& cards;
    std::string slices_folder;
  };
  /// Creates, or takes over, pages and socket.
  ///   errors  kAlreadyExists never; kResourceExhausted: a card is full; kUnavailable: files cannot be created
  static Result<std::unique_ptr<Slice>> open(const Shared& shared, Closer closer, const abi::ControlRequest& order,
                                             Descriptors kept);
  /// Removes what is left of a slice after the arbiter died while it created or removed that slice. Revokes pages that
  /// are still mapped, then deletes pages, lifelines, socket and folder. Does nothing if nothing is left. Must not be
  /// called for an open slice.
  static void remove_remains(const Shared& shared, const std::string& id);
  ~Slice();
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  /// Sets new limits for the same cards.
  ///   errors  kFailedPrecondition: the order names cards that the slice does not have, or not all of its cards
  Result<void> set_limits(const abi::ControlRequest& order);
  Result<void> set_overhead(std::uint32_t card, std::uint64_t bytes);

  /// Ends the account entries that the process took for the program that it ran before execve(). Other entries end only
  /// when the process dies.
  void free_replaced(std::int32_t pid);
  struct Place {
    std::uint32_t entry;
    Fd lifeline;  // for the library; none for a library that takes none
  };
  /// Takes an account entry for one library of a process. The entry is empty on every card and names the process.
  ///   errors  kResourceExhausted: all 1,024 entries are taken, stock entries included, or no file can be created
  Result<Place> take_entry(std::int32_t pid, Fd pidfd, bool takes_lifeline);
  /// The process of this account entry has ended. The entry counts while forked children hold its lifeline: they
  /// inherited the driver's descriptors too, which keep the program's memory allocated. Without them only the card time
  /// that the program used still counts.
  void process_died(std::uint32_t entry);
  /// The descriptors that a client receives with its Welcome, in card order: grant, account, …
  Result<std::vector<Fd>> tenant_descriptors(abi::LibraryKind kind) const;

  void describe(abi::ControlList* list);
  /// Forbids every further launch and allocation, and removes files and socket.
  void revoke();

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] int listener() const { return listener_.get(); }
  [[nodiscard]] const Closer& closer() const { return closer_; }
  [[nodiscard]] std::vector<int> kept_descriptors() const;
  struct Member {
    Fd pidfd;  // none: it could not be opened yet
    std::int32_t pid = 0;
    Lifelines::Lifeline lifeline;
    bool dead = false;
  };
  /// The process of each account entry.
  [[nodiscard]] const std::map<std::uint32_t, Member>& members() const { return members_; }
  /// Forbids the stock of threads (abi/page.h) for the rest of the slice's life, because a library of ABI 1 joins it:
  /// that library cannot collect the stock of other threads.
  void forbid_stock();
  /// Handles changes that no event reports; call it regularly. Ends the account entries of programs that were replaced
  /// in the same process (exec), and of dead processes without heirs: checks some entries per call, in turn. Sets stock
  /// entries aside when a process asks for them. Cost: three system calls per checked entry.
  void look_around();

 private:
  struct Card {
    std::string name;  // of its grant page's file
    std::string uuid;
    Mapped<abi::GrantPage> grant;
    AccountFile account;
    CardLoop* loop = nullptr;
    int number = -1;
  };
  Slice(const Shared& shared, Closer closer, std::string id)
      : files_(shared.files), lifelines_(shared.lifelines), id_(std::move(id)), closer_(std::move(closer)) {}
  Result<void> open_card(Cards& cards, const abi::ControlCard& order, Fd kept);
  Result<void> listen(const std::string& slices_folder, bool in_private_folder, Fd kept);
  /// True if the memory of the program is gone, in its process and in all that inherited it.
  [[nodiscard]] bool ended(const Member& member) const;
  void look_at_members();
  void look_at_stock();
  /// Finds the stock entries of a slice that an earlier arbiter created.
  void take_stock_over();
  [[nodiscard]] bool in_stock(std::uint32_t entry) const;
  void free_entry(std::uint32_t entry);
  void take_members_over(const std::set<std::int32_t>& processes);
  void empty_entry(std::uint32_t entry);
  void refresh_headers();

  PageFiles& files_;
  const Lifelines& lifelines_;
  std::string id_;
  std::string folder_;
  std::string outer_;  // the outer folder, which only root can pass; or empty
  std::vector<Card> cards_;
  Fd listener_;
  Closer closer_;  // for all that arrives through the listener
  std::map<std::uint32_t, Member> members_;
  std::uint32_t last_looked_at_ = 0;
  std::uint32_t stock_first_ = 0;
  std::uint32_t stock_count_ = 0;  // of stock entries, on every card; 0: there are none
  bool revoked_ = false;
};

}  // namespace carve::arbiter
