#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi/control.h"
#include "abi/hello.h"
#include "app/arbiter/card.h"
#include "app/arbiter/closer.h"
#include "app/arbiter/image.h"
#include "app/arbiter/page_files.h"
#include "base/fd.h"
#include "base/result.h"

namespace carve::arbiter {

/// The loops of all cards, made at first need, by UUID.
class Cards {
 public:
  explicit Cards(std::string trace_prefix) : trace_prefix_(std::move(trace_prefix)) {}
  Result<CardLoop*> of(const std::string& uuid);

 private:
  std::string trace_prefix_;
  std::map<std::string, std::unique_ptr<CardLoop>> loops_;
};

/// A slice as the arbiter holds it: per card a pair of pages, one socket, and who sits in which slot. One thread
/// (the server's) calls everything here.
class Slice {
 public:
  struct Descriptors {
    std::vector<Fd> accounts;  // one per card, or empty: new ones are made
    Fd listener;               // or none: a new one is made
  };
  /// Makes, or takes over, pages and socket.
  ///   errors  kAlreadyExists never; kResourceExhausted: a card is full; kUnavailable: files cannot be made
  static Result<std::unique_ptr<Slice>> open(PageFiles& files, Cards& cards, const std::string& slices_folder,
                                             const abi::ControlRequest& order, Descriptors kept);
  /// Takes away what an arbiter left that died while it made or removed this slice: what is still mapped somewhere is
  /// revoked, then pages, socket and folder go. Not for one that is open. Success when there is nothing.
  static void remove_remains(PageFiles& files, const std::string& slices_folder, const std::string& id);
  ~Slice();
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  /// New limits for the same cards.
  ///   errors  kFailedPrecondition: other cards than it was made with
  Result<void> set_limits(const abi::ControlRequest& order);
  Result<void> set_overhead(std::uint32_t card, std::uint64_t bytes);

  /// Frees what the process held as another program, before execve(). Nothing else but its death frees what it holds.
  void free_replaced(std::int32_t pid);
  /// A place for one library of a process; its slots are empty and say which process they belong to. −1: all 1,024
  /// are taken.
  int take_slot(std::int32_t pid, Fd pidfd);
  /// The process of this slot is gone, or one of its heirs: children that it forked and that have the driver's
  /// descriptors keep its memory. Without any nothing of it counts any more, but the time it used.
  void process_died(std::uint32_t slot);
  /// What a client gets with its Welcome, in card order: grant, account, …
  Result<std::vector<Fd>> tenant_descriptors(abi::LibraryKind kind) const;

  void describe(abi::ControlReply* out);
  /// Nothing may be launched or allocated any more; files and socket go.
  void revoke();

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] int listener() const { return listener_.get(); }
  [[nodiscard]] const Closer& closer() const { return closer_; }
  [[nodiscard]] std::vector<int> kept_descriptors() const;
  struct Member {
    Fd pidfd;  // none: it could not be had yet
    std::int32_t pid = 0;
    Image image;  // that said hello
    std::string lifeline;  // where it is mapped, once that was looked at
    struct Heir {
      Fd pidfd;
      Image image;
    };
    std::vector<Heir> heirs;  // of the dead
    int looks = 0;            // for the lifeline
    bool dead = false;
  };
  /// Who sits in which slot.
  [[nodiscard]] const std::map<std::uint32_t, Member>& members() const { return members_; }
  /// Frees the slots of programs that others have replaced in the same process (exec): no death tells of that. Looks at
  /// some slots per call, in turn. Cost: a system call for each.
  void look_for_exec();

 private:
  struct Card {
    std::string name;  // of its grant page's file
    std::string uuid;
    Mapped<abi::GrantPage> grant;
    AccountFile account;
    CardLoop* loop = nullptr;
    int number = -1;
  };
  explicit Slice(PageFiles& files, std::string id) : files_(files), id_(std::move(id)) {}
  Result<void> open_card(Cards& cards, const abi::ControlCard& order, Fd kept);
  Result<void> listen(const std::string& slices_folder, bool gated, Fd kept);
  void find_heirs(std::uint32_t slot, Member& dead);
  void free_slot(std::uint32_t slot);
  void take_members_over();
  void empty_slot(std::uint32_t slot);
  void refresh_headers();

  PageFiles& files_;
  std::string id_;
  std::string folder_;
  std::string gate_;  // the folder around it that others cannot pass; or empty
  std::vector<Card> cards_;
  Fd listener_;
  Closer closer_;  // of whatever comes through the listener
  std::map<std::uint32_t, Member> members_;
  std::uint32_t last_looked_at_ = 0;
  bool revoked_ = false;
};

}  // namespace carve::arbiter
