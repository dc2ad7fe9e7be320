#pragma once

#include <cstddef>
#include <cstdint>

// What goes over a slice's own socket, <slices>/<id>/s (SOCK_SEQPACKET): one Hello, one Welcome with
// descriptors, then both sides close. The arbiter takes the caller's host PID from the peer credentials and
// pins it with a pidfd; after fork the child connects again. Plain data, freestanding.
namespace carve::abi {

inline constexpr std::uint32_t kHelloMagic = 0x48564143;  // "CAVH"
inline constexpr std::size_t kMaxCardsPerSlice = 16;

/// Where the library looks for its slices: one folder per slice, each with a socket `s` in it.
inline constexpr char kSlicesFolder[] = "/run/carve/slices";
/// The driver's own untouched files, as the library's ELF dependency names them.
inline constexpr char kDriverFolder[] = "/usr/lib/carve/driver";

enum class LibraryKind : std::uint32_t { kCuda = 1, kNvml = 2 };

enum class WelcomeStatus : std::uint32_t {
  kOk = 0,
  kAbiUnsupported = 1,  // the ranges do not meet; abi says what the arbiter speaks
  kNoFreeSlot = 2,      // 1,024 library instances already
  kRevoked = 3,         // the slice is gone
  kMalformed = 4,       // not a Hello
  kForeign = 5,         // not in the slice's cgroup
};

struct Hello {
  std::uint32_t magic;
  std::uint16_t abi_min;
  std::uint16_t abi_max;
  LibraryKind kind;        // kNvml reads only: no slot is taken and no account page comes writable
  std::uint32_t reserved;
};
static_assert(sizeof(Hello) == 16);

/// What a message on a slice's socket deserves, before anybody asks whose it is: kOk, kMalformed or kAbiUnsupported. A
/// client is served that reads what this build writes: one of this ABI, of the one before (kClientAbiMin), or a newer
/// one that still reads it.
///   bytes  what arrived; `length` is its true length, bytes beyond `sizeof(Hello)` need not be there
WelcomeStatus judge_hello(const void* bytes, std::size_t length, Hello* out);

/// With kOk, 2 × card_count descriptors come along: grant (read-only), account, grant, account, … in the
/// order in which the slice's owner sees its cards.
struct Welcome {
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t card_count;
  WelcomeStatus status;
  std::int32_t host_pid;
  std::uint32_t slot;       // the index in every account page of this slice
  std::uint32_t instance;   // to be stored in AccountSlot::instance, never 0
  std::uint64_t reserved;
};
static_assert(sizeof(Welcome) == 32);

}  // namespace carve::abi
