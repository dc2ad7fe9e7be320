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

/// What a test wants a slice's card to be.
struct CardSpec {
  std::string uuid;
  std::uint64_t memory_limit = ~std::uint64_t{0};
  std::uint32_t compute_limit = 100;
  abi::ShareClass share_class = abi::ShareClass::kBurst;
  std::uint64_t context_bytes = 0;
};

/// Speaks the slice's side of abi/hello.h with grants that stand still: solo for ever, until the test changes a
/// word. For measuring the library alone and for what a real arbiter would not do; shares are tested with the
/// real one. Serves until destroyed.
class SliceServer {
 public:
  /// Listens at <folder>/s. Aborts when it cannot: a test's own surroundings are broken then.
  SliceServer(const std::string& folder, const std::vector<CardSpec>& cards);
  ~SliceServer();
  SliceServer(const SliceServer&) = delete;
  SliceServer& operator=(const SliceServer&) = delete;

  [[nodiscard]] abi::GrantPage& grant(std::size_t card) { return *grants_[card]; }
  [[nodiscard]] abi::AccountPage& account(std::size_t card) { return *accounts_[card]; }
  [[nodiscard]] std::uint64_t used_bytes(std::size_t card) const;
  [[nodiscard]] std::uint32_t connections() const { return __atomic_load_n(&connections_, __ATOMIC_ACQUIRE); }
  /// Hold it over a fork(): the server's thread does nothing meanwhile. A child would inherit what that thread has
  /// locked, for ever; of all allocators that of AddressSanitizer does not see to it.
  [[nodiscard]] std::unique_lock<std::mutex> quiet() { return std::unique_lock(at_work_); }

 private:
  void serve();
  void welcome(int connection);

  Fd listener_;
  std::vector<Fd> descriptors_;
  std::vector<abi::GrantPage*> grants_;
  std::vector<abi::AccountPage*> accounts_;
  std::uint32_t connections_ = 0;
  std::mutex at_work_;
  std::thread thread_;
};

}  // namespace carve::preload::testing
