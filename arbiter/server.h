#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "abi/control.h"
#include "arbiter/account_search.h"
#include "arbiter/arbiter.h"
#include "arbiter/closer.h"
#include "arbiter/own_groups.h"
#include "arbiter/slice.h"
#include "base/fd.h"

namespace carve::arbiter {

/// The arbiter's only event loop: the agent's messages, the tenants' hellos, the deaths of their processes. It cannot
/// delay the grants, which the cards' own threads write.
class Server {
 public:
  Server(const Options& options, Log& log, PageFiles files, Lifelines lifelines, Fd control);
  Result<void> run(const std::stop_token& stop);

 private:
  struct Guest {  // connected to a slice's socket, no hello yet
    Fd socket;
    std::string slice;
    std::uint64_t deadline_ns;
    Closer closer;  // the closer of its slice
    void leaves() { closer.take(std::move(socket)); }
  };
  void recover();
  using Accounts = std::map<std::uint64_t, FoundAccount>;  // by inode
  using Grants = std::map<std::string, Mapped<abi::GrantPage>>;  // by the name of the file
  bool recover_slice(const std::string& id, std::uint32_t cards, const Grants& grants, Accounts& accounts);
  void poll_once(int timeout_ms);
  void accept_control();
  bool serve_control(int socket);
  void answer(int socket, abi::ControlReply& reply, const Result<void>& result, const std::vector<int>& fds = {});
  Result<std::vector<int>> put(const abi::ControlRequest& request, std::vector<Fd> fds);
  void drop(const std::string& id);
  void list(int socket, const std::string& after, bool counters);
  void accept_guest(Slice& slice);
  void greet(Guest& guest);
  bool welcome_in(const std::string& slice, pid_t pid);

  Log& log_;
  PageFiles files_;
  Lifelines lifelines_;
  Cards cards_;
  Slice::Shared shared_;
  Fd control_;
  OwnGroups groups_;
  std::vector<Fd> agents_;
  Closers closers_;  // before the guests and slices, so that it is destroyed after them
  std::vector<Guest> guests_;
  std::map<std::string, std::unique_ptr<Slice>> slices_;
  // only files are left of these slices; the agent decides whether to delete or re-create them
  std::set<std::string> remains_;
  std::uint32_t instances_ = 0;
  std::uint64_t next_warning_ns_ = 0;
};

}  // namespace carve::arbiter
