#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/card.h"
#include "core/model/request.h"
#include "core/model/slice.h"

// Elastic GPU's three objects in normal form. They relate like StorageClass, PersistentVolumeClaim and
// PersistentVolume.
namespace carve {

/// What a provisioner promises about isolation, and whether Carve has it.
struct Provisioner {
  std::string_view name;     // as in elasticgpu.io/NAME
  std::string_view promise;  // for documents and messages
  std::string_view dialect;  // of the slices; a node's share policy for that dialect applies
  ShareClass share = ShareClass::kBurst;
  bool whole = false;
  std::string_view unsupported = {};  // why no claim is bound; empty: it is supported
};
/// By the last or the first part of its name: "elasticgpu.io/qgpu", "gpushare.provisioner.elasticgpu.io". nullptr:
/// there is none.
[[nodiscard]] const Provisioner* provisioner_named(std::string_view name);
/// For messages: "elasticgpu.io/qgpu, …".
[[nodiscard]] std::string provisioner_names();

struct ElasticClass {
  std::string name;
  std::string provisioner;
  bool retain = false;     // reclaimPolicy Retain; else Delete
  bool waits = false;      // binding mode WaitForFirstConsumer; else Immediate
  bool enforced = false;   // parameter isolation: enforced. Compute is a cap, whatever the provisioner promises
  std::uint32_t pods = 1;  // parameter pods: how many pods may use a claim at a time, each with an equal part
  std::string error = {};  // what is illegal in it; empty: nothing
  friend bool operator==(const ElasticClass&, const ElasticClass&) = default;
};

enum class GpuPhase : std::uint8_t { kPending, kAvailable, kBound, kReleased, kFailed };
enum class ClaimPhase : std::uint8_t { kPending, kBound, kLost };
[[nodiscard]] std::string_view to_string(GpuPhase phase);
[[nodiscard]] std::string_view to_string(ClaimPhase phase);
/// Whether the room of an ElasticGPU is kept in the phase that its status shows.
[[nodiscard]] bool keeps_room(std::string_view phase);

/// The claim that an ElasticGPU belongs to.
struct ElasticClaimRef {
  std::string namespace_name;
  std::string name;
  std::string uid;  // empty: an administrator reserved the ElasticGPU for a claim of that name
  friend bool operator==(const ElasticClaimRef&, const ElasticClaimRef&) = default;
};

/// An ElasticGPU: one or several cards of a node, or an equal part of each of them.
struct ElasticGpu {
  std::string name;
  std::string uid;
  std::string version;     // resourceVersion
  std::string class_name;  // empty: of any class
  std::string node;
  std::vector<std::string> cards;  // each a UUID, an index, or "gpu-N"
  Request request;                 // its size
  std::optional<ElasticClaimRef> claim;
  bool retain = true;
  bool deleting = false;
  std::string error = {};  // what is illegal in it; empty: nothing
  std::string phase = {};  // as its status says, like the next three
  std::string message = {};
  std::string shown_node = {};  // where its room is kept, for the node's agent
  std::string shown_cards = {};  // the UUIDs, as card_list() writes them
  friend bool operator==(const ElasticGpu&, const ElasticGpu&) = default;
};

struct ElasticClaim {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string version;
  std::string class_name;
  std::string gpu;  // the ElasticGPU's name; empty: not bound
  Request request;
  bool deleting = false;
  bool is_protected = false;  // it has the finalizer kClaimFinalizer
  std::string error = {};
  std::string phase = {};
  std::string message = {};
  friend bool operator==(const ElasticClaim&, const ElasticClaim&) = default;
};
inline constexpr std::string_view kClaimFinalizer = "elasticgpu.io/claim-protection";

/// "GPU-a,GPU-b": the cards in the status of an ElasticGPU or a claim, and in messages.
[[nodiscard]] std::string card_list(const std::vector<std::string>& cards);
[[nodiscard]] std::string card_list(const std::vector<CardId>& cards);

/// Whether that ElasticGPU is large enough for the claim's request: number of cards, memory, compute, whole or not.
///   card_memory, model  of its card; of several cards, the smallest memory and any model
[[nodiscard]] bool serves(const ElasticGpu& gpu, const Request& wanted, Bytes card_memory, std::string_view model);

}  // namespace carve
