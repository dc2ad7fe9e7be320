#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/hello.h"
#include "abi/page.h"

// What the agent says to the arbiter, over <runtime>/arbiter/control (SOCK_SEQPACKET, root only): one request, one
// reply. Plain data; texts are NUL-terminated.
namespace carve::abi {

inline constexpr std::uint32_t kControlMagic = 0x43564143;  // "CAVC"
inline constexpr std::uint16_t kControlAbi = 1;
inline constexpr std::size_t kMaxSliceId = 63;

enum class ControlOp : std::uint16_t {
  // Makes pages and socket of a slice, or gives an existing one these limits. The reply brings duplicates of the
  // account memfds, in card order, and of the listening socket: to be kept for a restarted arbiter.
  kPut = 1,
  kDrop = 2,         // revokes and removes, files of an earlier arbiter included; success when there is none
  // What the pages of one slice say: of the first one whose id comes after the request's, which may be empty. `more`:
  // there are further ones. No cards: none at all. One at a time, so that no list is ever too long for a socket.
  // `remains`: only files are left of it, from an arbiter before this one; what they say counts no more.
  kList = 3,
  kSetOverhead = 4,  // card_index, overhead_bytes
  // After the arbiter was restarted: as kPut, and brings the descriptors that kPut's reply brought. Those of the
  // reply are to be kept from now on: where nothing could be lost, the arbiter has others already.
  kAdopt = 5,
};

struct ControlCard {
  char uuid[48];
  std::uint64_t memory_limit;   // bytes
  std::uint64_t context_bytes;  // charged in advance per context
  std::uint32_t compute;        // 1/100 of the card
  ShareClass share;
  PriorityClass priority;
  std::uint32_t reserved;
};
static_assert(sizeof(ControlCard) == 80);

struct ControlRequest {
  std::uint32_t magic;
  std::uint16_t abi;
  ControlOp op;
  char id[kMaxSliceId + 1];
  std::uint16_t card_count;
  std::uint16_t gated;  // of kPut and kAdopt: 1: its folder is <slices>/<id>/<id>, and the outer one root's alone
  std::uint32_t card_index;
  std::uint64_t overhead_bytes;
  ControlCard cards[kMaxCardsPerSlice];
};
static_assert(sizeof(ControlRequest) == 88 + kMaxCardsPerSlice * sizeof(ControlCard));

struct ControlCardState {
  char uuid[48];
  std::uint64_t announced_bytes;
  std::uint64_t busy_ns;     // as its processes measured it
  std::uint64_t charged_ns;  // as the arbiter accounts it
  std::uint32_t contexts;
  std::uint32_t rescues;  // leases out of turn, because its work seemed to wait for a launch; ever growing
};
static_assert(sizeof(ControlCardState) == 80);

/// More figures of one card of a slice, in the order of `cards`. Times in ms modulo 2^32.
struct ControlLate {
  std::uint32_t granted_ms;  // the slice held the card's lease; never 0
  std::uint32_t drained_ms;  // its work ran on after the end of a lease, as far as LeaseTime excuses that
};

struct ControlReply {
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t more;
  std::uint32_t code;  // 0, or one of the canonical status codes
  std::uint32_t card_count;
  std::uint32_t pid_count;
  std::uint32_t remains;  // 1: nobody is ruled by it, only its files are there; one card without a name stands for it
  char id[kMaxSliceId + 1];
  // `code` selects the member: not 0: an error's text; 0: `late`, which was added to this message later. An earlier
  // arbiter leaves it empty, so granted_ms = 0 means that the arbiter does not report the figures.
  union {
    char text[168];  // the error, for a person
    ControlLate late[kMaxCardsPerSlice];
  };
  ControlCardState cards[kMaxCardsPerSlice];
  std::int32_t pids[kAccountSlots];
};
static_assert(sizeof(ControlLate) * kMaxCardsPerSlice <= 168, "fits into the space of the text");
static_assert(sizeof(ControlReply) == 256 + kMaxCardsPerSlice * sizeof(ControlCardState) + kAccountSlots * 4);

/// Every text ends within its field, every number lies within its range; `why` names the first that does not.
///   bytes  what arrived, of any length
const char* malformed(const void* bytes, std::size_t length, ControlRequest* out);

/// Ids become file names: 1 to 63 of [a-z0-9-], no dash in front.
bool valid_slice_id(const char* id);

}  // namespace carve::abi
