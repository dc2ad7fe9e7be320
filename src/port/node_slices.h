#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/model/record.h"
#include "core/model/share_policy.h"
#include "core/model/slice.h"
#include "port/gpu.h"

namespace carve {

/// One part (container or claim request) that is about to start on this node. The decision travels whole: a pod's
/// record as it was decoded, or a claim's allocation as a record (plan_claim()). Only prepare() turns a part of it into
/// slices. It is the decision of the allocator of these cards, never a value that a tenant wrote.
struct PrepareRequest {
  Record record;            // of the part's owner. Its epoch, that of the leader that decided, is stored in the journal
  std::string part = {};    // the part of the record that starts
  std::string device = {};  // the CDI name promised in Allocate; empty: create one
  std::string label = {};   // namespace/pod/container, for messages
  std::vector<std::string> pods = {};  // UIDs of the pods that hold it, as the kubelet knows them (at most 64 are used)
  // True: the part keeps the slices that it holds, and only the owner of the record is used. If the slices have ended,
  // the request fails with kNotFound, so that an owner that is gone gets no new slices.
  bool existing_only = false;
  // Variables that its dialect promises inside the container: a projection of the record that nothing reads back. They
  // are stored with the slice; empty for an existing part keeps the stored ones. At most 16. Keys consist of letters,
  // digits and _; values may also contain . : / - and commas; NVIDIA_VISIBLE_DEVICES is not allowed.
  std::map<std::string, std::string> environment = {};
};

struct Prepared {
  std::string device;  // fully qualified, published CDI name: a runtime that resolves it finds the slice
};

/// A slice and its label.
struct HeldSlice {
  Slice slice;
  std::string label;  // as in PrepareRequest
  bool ending = false;
  friend bool operator==(const HeldSlice&, const HeldSlice&) = default;
};

/// Why this node cannot provide cards, as readable texts; an empty text: no trouble.
struct NodeTroubles {
  GpuState gpu = GpuState::kOk;
  std::string gpu_reason;
  bool gpu_passing = false;  // the cards are not unknown yet (CardHealth): it may be one late answer. Ignored for kOk
  std::string arbiter;
  std::string journal;
  std::string library;
};

/// An error of an application that the driver reported on a card: the card is fine.
struct ProgramError {
  CardId card;
  std::string text;  // "XID 31: …"
  friend bool operator==(const ProgramError&, const ProgramError&) = default;
};

/// What the two kubelet plugins need from the node: one prepare() for both. Safe from any thread. Calls for one
/// owner run one after the other, in the order of arrival. Calls for different owners do not wait for each other's
/// steps; they share the journal's syncs and the arbiter's connection. All of it works from the journal alone while the
/// driver is away.
class NodeSlices {
 public:
  virtual ~NodeSlices() = default;
  /// Returns a CDI name that no other part ever gets, not even after a reboot. Names are reserved in the journal in
  /// advance, so that the call waits for no disk and for no prepare(). Where that was not possible (a full disk), the
  /// name is random.
  virtual Result<std::string> promise_device() = 0;
  /// Updates the ledger, the journal (synced), the pages and the CDI file, in this order, all or nothing. A repeated
  /// call with the same part, the same slices and the same `device` changes nothing and returns the same result. With
  /// another `device` the slices are created again under that name.
  ///   errors  kResourceExhausted: other owners hold the card, with the numbers; kAlreadyExists: the part holds
  ///           something else; kNotFound: no such card on this node, or `existing_only` is set and the part has ended;
  ///           kInvalidArgument: an illegal record, or one without this part; kFailedPrecondition: another `device`,
  ///           and a process of the previous container runs; kUnavailable: the arbiter or the journal is away
  virtual Result<Prepared> prepare(const PrepareRequest& request) = 0;
  /// The owner is gone: nothing of it starts any more, even after a restart. Its slices are freed when its processes
  /// are gone: those in its pods' cgroups, those that said hello, and those that the driver reports. Neither the
  /// arbiter nor the driver is needed. Success when the owner has no slices. For a claim the call waits for the last
  /// process (1 s); for a pod it does not wait.
  ///   errors  kFailedPrecondition: processes still run; the slices are freed in the background, and a later call
  ///           returns success; kUnavailable: the journal cannot be written
  virtual Result<void> unprepare(const Owner& owner) = 0;
  /// Sets the policies for slices of class ShareClass::kNode. Running slices follow within a second. Never waits.
  virtual void divide_by(const SharePolicies& policies) = 0;
  /// The slices of all owners on this node, including those that are ending.
  [[nodiscard]] virtual std::vector<Slice> held() const = 0;
  /// The same with their labels.
  [[nodiscard]] virtual std::vector<HeldSlice> holdings() const {
    std::vector<HeldSlice> all;
    for (auto& slice : held()) all.push_back({std::move(slice), {}, false});
    return all;
  }
  [[nodiscard]] virtual NodeTroubles troubles() const { return {}; }
  /// The errors since the last call; each XID of a card at most once a minute, and at most the last kMostProgramErrors.
  static constexpr std::size_t kMostProgramErrors = 64;
  [[nodiscard]] virtual std::vector<ProgramError> take_program_errors() { return {}; }
  /// The cards as last seen; a lost card stays, with its health.
  [[nodiscard]] virtual GpuInventory cards() const = 0;
};

}  // namespace carve
