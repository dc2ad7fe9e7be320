#pragma once

#include <map>
#include <string>
#include <vector>

#include "abi/control.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "port/pages.h"

namespace carve::arbiter {

/// The arbiter's control socket. The client keeps duplicates of every slice's account pages and listening socket. After
/// a restart of the arbiter it sends them before any other request, so that running slices lose nothing.
class ArbiterClient final : public Pages {
 public:
  /// `socket_path`: <runtime>/arbiter/control. Connects at the first call, and again after the connection broke.
  explicit ArbiterClient(std::string socket_path) : path_(std::move(socket_path)) {}

  Result<void> put(const PageOrder& order) override;
  Result<void> drop(const std::string& id) override;
  Result<std::vector<PageSlice>> list() override;
  Result<void> set_overhead(const std::string& id, std::uint32_t card_index, Bytes overhead) override;

 private:
  struct Kept {
    abi::ControlRequest order;
    std::vector<Fd> fds;  // account pages in card order, then the listening socket
  };
  struct Answer {
    abi::ControlList list;  // `counters` are empty unless `counted`
    bool counted = false;   // the arbiter sent them: one of this release or later, and only to kList
  };
  Result<void> connect_if_needed() REQUIRES(mutex_);
  Result<void> adopt_all() REQUIRES(mutex_);
  Result<Answer> ask(const abi::ControlRequest& request, const std::vector<Fd>& fds, std::vector<Fd>* received)
      REQUIRES(mutex_);
  Result<Answer> receive(std::vector<Fd>* received) REQUIRES(mutex_);
  Result<Answer> ask_connected(const abi::ControlRequest& request, std::vector<Fd>* received) REQUIRES(mutex_);

  const std::string path_;
  Mutex mutex_;  // held during a call, so that there is one at a time; each has a deadline of 2 s
  Fd socket_ GUARDED_BY(mutex_);
  std::map<std::string, Kept> kept_ GUARDED_BY(mutex_);
};

}  // namespace carve::arbiter
