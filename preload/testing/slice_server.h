#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/hello.h"
#include "abi/page.h"
#include "base/fd.h"

namespace carve::preload::testing {

/// A slice's card, as a test specifies it.
struct CardSpec {
  std::string uuid;
  std::uint64_t memory_limit = ~std::uint64_t{0};
  std::uint32_t compute_limit = 100;
  abi::ShareClass share_class = abi::ShareClass::kBurst;
  std::uint64_t context_bytes = 0;
};

/// Serves the arbiter's side of abi/hello.h with grants that do not change: the slice is always solo, until the test
/// changes a word of the page. For measurements of the library alone and for states that a real arbiter does not
/// produce. Tests of shares use the real arbiter. Serves until destroyed.
class SliceServer {
 public:
  /// Listens at <folder>/s. Aborts when it cannot, because the test environment is broken then.
  SliceServer(const std::string& folder, const std::vector<CardSpec>& cards);
  ~SliceServer();
  SliceServer(const SliceServer&) = delete;
  SliceServer& operator=(const SliceServer&) = delete;

  [[nodiscard]] abi::GrantPage& grant(std::size_t card) { return *grants_[card]; }
  [[nodiscard]] abi::AccountPage& account(std::size_t card) { return *accounts_[card]; }
  /// The bytes that the processes use, without the stock.
  [[nodiscard]] std::uint64_t used_bytes(std::size_t card) const;
  /// Sets stock entries aside on every card, after the account entries that are in use.
  void provide_stock();
  [[nodiscard]] std::uint32_t connections() const { return __atomic_load_n(&connections_, __ATOMIC_ACQUIRE); }
  /// Hold this lock during a fork(), so that the server's thread is idle. Otherwise the child inherits the locks that
  /// the thread holds, and they are never released. AddressSanitizer's allocator does not handle this case.
  [[nodiscard]] std::unique_lock<std::mutex> quiet() { return std::unique_lock(at_work_); }

 private:
  void serve();
  void welcome(int connection);

  Fd listener_;
  std::vector<Fd> descriptors_;
  std::vector<abi::GrantPage*> grants_;
  std::vector<abi::AccountPage*> accounts_;
  std::uint32_t connections_ = 0;
  std::uint32_t stock_first_ = static_cast<std::uint32_t>(abi::kAccountEntries);  // none yet
  std::mutex at_work_;  // protects all fields after the constructor
  std::thread thread_;
};

}  // namespace carve::preload::testing
