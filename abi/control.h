#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/hello.h"
#include "abi/page.h"

// The messages between the agent and the arbiter on the socket <runtime>/arbiter/control (SOCK_SEQPACKET, root only).
// Each request has one reply. Plain data; texts are NUL-terminated.
namespace carve::abi {

inline constexpr std::uint32_t kControlMagic = 0x43564143;  // "CAVC"
inline constexpr std::uint16_t kControlAbi = 1;
inline constexpr std::size_t kMaxSliceId = 63;

enum class ControlOp : std::uint16_t {
  // Creates the pages and the socket of a slice, or sets these limits on an existing slice. The reply carries
  // duplicates of the account memfds, in card order, and of the listening socket. The agent keeps them for a restarted
  // arbiter.
  kPut = 1,
  kDrop = 2,         // revokes and removes a slice, including files of an earlier arbiter; success if none exists
  // Returns the contents of the pages of one slice: the first slice with an id greater than the request's id, which may
  // be empty. `more`: further slices exist. A reply without cards: no such slice exists. Each reply contains one slice,
  // so that no list is too long for a socket. `remains`: only files of an earlier arbiter are left of the slice; their
  // contents no longer count. `list_counters`: the reply is a ControlList instead of a ControlReply.
  kList = 3,
  kSetOverhead = 4,  // card_index, overhead_bytes
  // Used after a restart of the arbiter: like kPut, and carries the descriptors from kPut's reply. From now on the
  // agent keeps the descriptors of this reply instead: if nothing could be lost, the arbiter has already created new
  // ones.
  kAdopt = 5,
};

struct ControlCard {
  char uuid[48];
  std::uint64_t memory_limit;   // bytes
  std::uint64_t context_bytes;  // charged in advance per context
  std::uint32_t compute;        // 1/100 of the card
  ShareClass share;
  PriorityClass priority;
  std::uint32_t ceiling;        // 1/100 of the card, the cap of `burst` and `besteffort`; 0 or 100: none
};
static_assert(sizeof(ControlCard) == 80);

struct ControlRequest {
  std::uint32_t magic;
  std::uint16_t abi;
  ControlOp op;
  char id[kMaxSliceId + 1];
  std::uint16_t card_count;
  std::uint16_t in_private_folder;  // kPut, kAdopt; 1: the folder is <slices>/<id>/<id>, and the outer one is root's
  union {                        // `op` selects the member
    std::uint32_t card_index;     // kSetOverhead
    std::uint32_t list_counters;  // kList; not 0: the agent reads ControlList. An earlier arbiter ignores it
  };
  std::uint64_t overhead_bytes;
  ControlCard cards[kMaxCardsPerSlice];
};
static_assert(sizeof(ControlRequest) == 88 + kMaxCardsPerSlice * sizeof(ControlCard));

struct ControlCardState {
  char uuid[48];
  std::uint64_t announced_bytes;
  std::uint64_t busy_ns;     // measured by the slice's processes
  std::uint64_t charged_ns;  // charged by the arbiter
  std::uint32_t contexts;
  std::uint32_t rescues;  // leases out of turn, given because its work seemed to wait for a launch; only grows
};
static_assert(sizeof(ControlCardState) == 80);

/// More figures of one card of a slice, in the order of `cards`. Times in ms modulo 2^32.
struct ControlLate {
  std::uint32_t granted_ms;  // how long the slice held the card's lease; never 0
  std::uint32_t drained_ms;  // how long its work ran on after the end of a lease, as far as LeaseTime excuses it
};

struct ControlReply {
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t more;
  std::uint32_t code;  // 0 or a canonical status code
  std::uint32_t card_count;
  std::uint32_t pid_count;
  std::uint32_t remains;  // 1: the arbiter does not rule this slice; only its files exist. `cards`: one, without a uuid
  char id[kMaxSliceId + 1];
  // `code` selects the member. Not 0: `text`, an error. 0: `late`, which was added to this message later. An earlier
  // arbiter leaves it empty, so granted_ms = 0 means that the arbiter does not report the figures.
  union {
    char text[168];  // the error, for a person
    ControlLate late[kMaxCardsPerSlice];
  };
  ControlCardState cards[kMaxCardsPerSlice];
  std::int32_t pids[kAccountEntries];
};
static_assert(sizeof(ControlLate) * kMaxCardsPerSlice <= 168, "fits into the space of the text");
static_assert(sizeof(ControlReply) == 256 + kMaxCardsPerSlice * sizeof(ControlCardState) + kAccountEntries * 4);

/// The upper ends of the waits that ControlCounters::waits counts, in ns; the last count is of longer ones.
inline constexpr std::uint64_t kWaitEndsNs[] = {100'000,     1'000'000,     10'000'000,
                                                100'000'000, 1'000'000'000, 10'000'000'000};
inline constexpr std::size_t kWaitCounts = sizeof kWaitEndsNs / sizeof kWaitEndsNs[0] + 1;

/// What was counted of one card of a slice since its pages were created or the arbiter started. All of it only grows.
struct ControlCounters {
  std::uint64_t waits[kWaitCounts];  // times in which a launch waited for a lease and that have ended, by their length
  std::uint64_t waited_ns;           // their sum
  std::uint64_t capped_ns;           // the part in which a slice with a cap had used up its rate
  // As the slice's processes count them (AccountPage): a tenant can write any number.
  std::uint64_t gated_launches;
  std::uint64_t refused_requests;
  std::uint64_t refused_bytes;
};

/// The reply to kList with `list_counters`.
struct ControlList {
  ControlReply reply;
  ControlCounters counters[kMaxCardsPerSlice];  // in the order of `cards`
};

/// Checks that every text ends within its field and that every number is within its range, and copies the request to
/// `out`. Returns nullptr, or a text that names the first field that is wrong.
///   bytes  the received message, of any length
const char* malformed(const void* bytes, std::size_t length, ControlRequest* out);

/// Ids become file names: 1 to 63 characters of [a-z0-9-]; the first is not a dash.
bool valid_slice_id(const char* id);

}  // namespace carve::abi
