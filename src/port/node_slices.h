#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/model/slice.h"
#include "port/gpu.h"

namespace carve {

/// One part (container or claim request) that is about to start on this node, on all its cards. What was
/// decided by whoever allocates these cards (the record of a pod, the allocation of a claim), never what a
/// tenant wrote.
struct PrepareRequest {
  std::vector<Slice> slices;  // of one owner and part, in the order in which the part counts its cards
  std::string device;         // CDI name promised in Allocate; empty: make one
  std::string label;          // namespace/pod/container, for people
  std::vector<std::string> pods = {};  // UIDs of the pods that hold it, as the kubelet knows them (at most 64 count)
  // The slices are those that held() told: when they have ended since, nothing is made anew for an owner that is gone.
  bool standing = false;
  // Variables that its dialect promises inside the container: a projection of the record, which nothing reads back.
  // Kept with the slice: empty for a part that stands means those it has. At most 16; keys of letters, digits and _,
  // values also with . : / - and commas; none is NVIDIA_VISIBLE_DEVICES.
  std::map<std::string, std::string> environment = {};
  // Of the leader whose decision this is, as in the record; 0: nobody's, as of a claim. The journal keeps it.
  std::uint64_t epoch = 0;
};

struct Prepared {
  std::string device;  // fully qualified CDI name, published: a runtime that resolves it finds the slice
};

/// A slice, and what people call it.
struct HeldSlice {
  Slice slice;
  std::string label;  // as in PrepareRequest
  bool ending = false;
  friend bool operator==(const HeldSlice&, const HeldSlice&) = default;
};

/// What keeps this node from giving cards, in words for people; an empty text: nothing.
struct NodeTroubles {
  GpuState gpu = GpuState::kOk;
  std::string gpu_reason;
  std::string arbiter;
  std::string journal;
  std::string library;
};

/// The driver reported an error on a card that is a program's own: the card is fine.
struct ProgramError {
  CardId card;
  std::string text;  // "XID 31: …"
  friend bool operator==(const ProgramError&, const ProgramError&) = default;
};

/// What the kubelet's two doors ask of the node: one prepare, whichever door somebody came through. Safe from
/// any thread. All of it works from the journal alone, with the driver away.
class NodeSlices {
 public:
  virtual ~NodeSlices() = default;
  /// A CDI name that was and will never be another's, nor another boot's. Names are set aside in the journal in
  /// advance, so that it waits for no disk and for no prepare; where none could be (a full disk), by chance.
  virtual Result<std::string> promise_device() = 0;
  /// Ledger, journal (synced), pages, CDI file, in this order; all or nothing. The same part with the same
  /// slices again changes nothing and gives the same answer.
  ///   errors  kResourceExhausted: the card is held by others, with the numbers; kAlreadyExists: the part holds
  ///           something else; kNotFound: no such card on this node, or `standing` and ended; kUnavailable: arbiter or
  ///           journal is away
  virtual Result<Prepared> prepare(const PrepareRequest& request) = 0;
  /// The owner is gone: nothing of it starts any more, also after a restart. Its slices are freed when its
  /// processes are gone: those of its pods' cgroups, those that said hello, those that the driver names. Neither
  /// arbiter nor driver is needed. Success when there is none. Of a claim the last process is waited for (1 s);
  /// of a pod not.
  ///   errors  kFailedPrecondition: processes still run; it is freed behind the caller's back, and called again
  ///           later this says success; kUnavailable: the journal cannot be written
  virtual Result<void> unprepare(const Owner& owner) = 0;
  /// The owners that hold something here, each with its slices, ending ones included.
  [[nodiscard]] virtual std::vector<Slice> held() const = 0;
  /// The same with what people call them.
  [[nodiscard]] virtual std::vector<HeldSlice> holdings() const {
    std::vector<HeldSlice> all;
    for (auto& slice : held()) all.push_back({std::move(slice), {}, false});
    return all;
  }
  [[nodiscard]] virtual NodeTroubles troubles() const { return {}; }
  /// Since the last call; each XID of a card once a minute, the last kMostProgramErrors at most.
  static constexpr std::size_t kMostProgramErrors = 64;
  [[nodiscard]] virtual std::vector<ProgramError> take_program_errors() { return {}; }
  /// The cards as last seen; a card that is lost stays, with its health.
  [[nodiscard]] virtual GpuInventory cards() const = 0;
};

}  // namespace carve
