#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "abi/hello.h"
#include "abi/page.h"
#include "base/fd.h"

// What libcarve does with the arbiter, and what a tenant could do in its place, without a library.
namespace carve::arbiter_test {

/// One card of a slice, as one process sees it.
struct RawCard {
  Fd grant_fd;
  Fd account_fd;
  const abi::GrantPage* grant = nullptr;
  abi::AccountPage* account = nullptr;  // nullptr for NVML, which has a read-only descriptor
  abi::AccountEntry* entry = nullptr;
};

struct RawClient {
  abi::Welcome welcome{};
  std::vector<RawCard> cards;
  void* lifeline = nullptr;  // stays mapped, as the pages do
  RawCard& card() { return cards.front(); }
};

/// Connects to the slice's socket; nullopt when no process listens.
std::optional<Fd> connect_slice(const std::string& runtime, const std::string& id);
/// Sends a hello like the library; `fields` may be intentionally wrong. nullopt: no reply within 2 s.
std::optional<RawClient> hello(const std::string& runtime, const std::string& id,
                               abi::LibraryKind kind = abi::LibraryKind::kCuda, std::uint16_t abi_max = abi::kPageAbi,
                               std::optional<std::uint16_t> abi_min = std::nullopt,  // default: abi_max
                               std::uint32_t features = abi::kLifelines);
/// Sends these bytes instead of a hello and returns the reply.
std::optional<abi::Welcome> say(const std::string& runtime, const std::string& id, const std::string& bytes);

void ring(RawCard& card);
abi::LeaseMode mode_of(const RawCard& card);
std::uint64_t monotonic_ns();
/// Polls every 0.2 ms until the time is over. False: the condition did not become true.
bool eventually(const std::function<bool()>& condition, std::uint64_t most_ns = 3'000'000'000);

/// A thread that always has work for the card, in pieces of 1 ms, and honours its grants.
class Works {
 public:
  explicit Works(RawCard& card, std::uint64_t piece_ns = 1'000'000);
  ~Works();
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;
  /// How long the card has worked for it. Not the number of pieces: a processor that notices the end of each piece late
  /// makes them longer, but takes no card time from it.
  [[nodiscard]] std::uint64_t busy_ns() const { return card_.entry->busy_ns.load_relaxed() - before_ns_; }

 private:
  void run();
  RawCard& card_;
  std::uint64_t piece_ns_;
  std::atomic<bool> stop_{false};
  std::uint64_t before_ns_;  // the value of its account entry before
  std::thread thread_;
};

/// A separate process that runs `body` and then waits to be killed.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child() { kill(); }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), ready_(std::move(other.ready_)) {}
  Child& operator=(Child&&) = delete;
  /// Waits until `body` has returned; false when the process died in it.
  bool wait_ready();
  void kill();  // sends SIGKILL and reaps
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Fd ready_;
};

/// A new folder under /tmp and a private mount namespace; called once per process.
std::string make_runtime();

/// The arbiter in a separate process.
class ArbiterChild {
 public:
  explicit ArbiterChild(std::string runtime, std::string trace = "");
  ~ArbiterChild() { kill(); }
  ArbiterChild(const ArbiterChild&) = delete;
  ArbiterChild& operator=(const ArbiterChild&) = delete;
  void start();
  void kill();         // SIGKILL
  bool stop_nicely();  // SIGTERM; true when it ended by itself
  [[nodiscard]] bool alive() const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::uint64_t cpu_ns() const;  // user and system, all threads

 private:
  std::string runtime_;
  std::string trace_;
  pid_t pid_ = -1;
};

}  // namespace carve::arbiter_test
