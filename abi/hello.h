#pragma once

#include <cstddef>
#include <cstdint>

// The messages on a slice's own socket, <slices>/<id>/s (SOCK_SEQPACKET): one Hello, one Welcome with descriptors, then
// both sides close. The arbiter takes the caller's host PID from the peer credentials and pins it with a pidfd. After a
// fork the child connects again. Plain data, freestanding.
namespace carve::abi {

inline constexpr std::uint32_t kHelloMagic = 0x48564143;  // "CAVH"
inline constexpr std::size_t kMaxCardsPerSlice = 16;

/// The folder in which the library searches for its slices: one folder per slice, each with a socket `s`.
inline constexpr char kSlicesFolder[] = "/run/carve/slices";
/// The folder of the driver's own unchanged files, as the library's ELF dependency names it.
inline constexpr char kDriverFolder[] = "/usr/lib/carve/driver";

enum class LibraryKind : std::uint32_t { kCuda = 1, kNvml = 2 };

enum class WelcomeStatus : std::uint32_t {
  kOk = 0,
  kAbiUnsupported = 1,  // the version ranges do not overlap; `abi` is the arbiter's version
  kNoFreeEntry = 2,      // the slice already has 1,024 library instances, or 1,016 and stock entries
  kRevoked = 3,         // the slice was removed
  kMalformed = 4,       // not a Hello
  kForeign = 5,         // the caller is not in the slice's cgroup
};

struct Hello {
  std::uint32_t magic;
  std::uint16_t abi_min;
  std::uint16_t abi_max;
  LibraryKind kind;        // kNvml only reads: it takes no account entry and gets no writable account page
  std::uint32_t features;  // that the library knows; 0 from one that is older than this field
};
static_assert(sizeof(Hello) == 16);

/// Checks a message on a slice's socket, regardless of its sender. Returns kOk, kMalformed or kAbiUnsupported. A client
/// is served if it reads the pages that this build writes: a client of this ABI, of the previous ABI (kClientAbiMin),
/// or of a newer ABI that still reads this one.
///   bytes  the received message; `length` is its true length, but bytes beyond `sizeof(Hello)` need not be present
WelcomeStatus judge_hello(const void* bytes, std::size_t length, Hello* out);

/// A feature of both messages. The last descriptor of the Welcome is the account entry's lifeline: a read-only file
/// that the library maps, without access, for as long as the program lives. A forked child inherits the mapping
/// together with the driver's descriptors, which keep the program's memory allocated. So the account entry counts until
/// no process has the lifeline open or mapped.
inline constexpr std::uint32_t kLifelines = 1;
inline constexpr std::size_t kLifelineBytes = 4096;

/// With kOk the message carries 2 × card_count descriptors: grant (read-only), account, grant, account, … in the order
/// in which the slice's owner sees its cards. With kLifelines one more.
struct Welcome {
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t card_count;
  WelcomeStatus status;
  std::int32_t host_pid;
  std::uint32_t entry;       // the index of the account entry in every account page of this slice
  std::uint32_t instance;   // the client stores it in AccountEntry::instance; never 0
  std::uint32_t features;   // of the Hello's features, those that this Welcome uses
  std::uint32_t reserved;
};
static_assert(sizeof(Welcome) == 32);

}  // namespace carve::abi
