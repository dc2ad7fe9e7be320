#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"
#include "core/model/record.h"
#include "core/model/request.h"

namespace carve::codec {

using Texts = std::map<std::string, std::string>;
struct Shown;  // projection.h

/// What an installation configures about the dialects.
struct DialectSettings {
  Bytes gpushare_unit = Bytes::gib(1);  // of aliyun.com/gpu-mem: 1 GiB or 1 MiB
  bool nvidia_by_slots = true;          // false: another plugin serves nvidia.com/gpu, or it is served through DRA
  bool hami = false;                    // whether HAMi's names beside nvidia.com/gpu are read; only with the former
  Bytes volcano_unit = Bytes::mib(1);   // of volcano.sh/gpu-memory: its factor in MiB
  std::uint32_t deepomatic_containers = 0;  // per card, each with an equal part of it; 0: deepomatic.com is not read
  std::uint32_t rancher_containers = 0;     // the same for nvidia.com/gpu on Rancher's shared nodes; 0: whole cards
};

/// What one container says in one dialect: the values of its resource names. Each is set as a limit; where there is
/// also a request, it has the same value.
class Words {
 public:
  explicit Words(std::map<std::string_view, std::string> values) : values_(std::move(values)) {}
  /// A whole number of `unit` from `low` to `high`; nullopt: not set. Faults are appended to `errors`.
  std::optional<std::uint64_t> count(std::string_view name, std::uint64_t high, std::string_view unit,
                                     std::vector<Error>* errors, std::uint64_t low = 1) const;
  /// Hundredths of a card: multiples of `step` up to 100; with `cards` also k*100 for k whole cards. nullopt: not set.
  std::optional<std::uint64_t> hundredths(std::string_view name, std::uint64_t step, bool cards,
                                          std::vector<Error>* errors) const;
  [[nodiscard]] const std::string* find(std::string_view name) const;

 private:
  std::map<std::string_view, std::string> values_;
};

/// What a Node shows under a resource name: the total of its cards, counted like this. The kubelet subtracts the
/// amounts of all pods from it and refuses a pod that exceeds it. So a name by which many pods may share a card is
/// counted in slots, and a name of which pods may request more than there is has no total: the kubelet ignores it.
/// kCardsOfNvidia: cards; slots where HAMi's names are read; parts on Rancher's shared nodes. kMemory: of each card, in
/// whole units.
enum class Total : std::uint8_t { kNone, kCards, kSlots, kCardsOfNvidia, kCardsOfDeepomatic, kHundredths, kMemory };

/// What a container may request by a resource name. A card counts in its total only in a mode that permits that.
enum class Requested : std::uint8_t { kAny, kFractions, kWholeCards };

/// Pod annotations with which a tenant states how its containers share compute, in every dialect.
inline constexpr std::string_view kShareAnnotation = "elasticgpu.io/share-class";
inline constexpr std::string_view kPriorityAnnotation = "elasticgpu.io/priority-class";
inline constexpr std::string_view kCoreLimitAnnotation = "elasticgpu.io/core-limit";

/// The largest legal number of TFLOPS: no card has that many.
inline constexpr std::uint64_t kMostTflops = 10'000;

/// One resource name of a dialect.
struct ResourceName {
  std::string_view name;
  std::string_view amounts;  // the unit and the legal amounts, for documents and refusals
  Total total = Total::kNone;
  Bytes (*unit)(const DialectSettings&) = nullptr;  // of kMemory
  bool asked = true;  // false: only Nodes show it
  Requested requested = Requested::kAny;
  bool zero = false;  // true: 0 is a value; false: it is the same as absent
  bool owned = true;  // false: a row above owns it. A container that says only such names does not use this dialect
};

/// A pod annotation of another system that says how nodes, or the cards of a node, are ranked: "binpack", "spread", or
/// a list of words of which the first of these two applies.
struct RankingAnnotation {
  std::string_view name;
  bool nodes;  // false: it ranks cards
  std::span<const std::string_view> others = {};  // further legal words of the list, which rank nothing
};

/// A dialect is one row: its name, its resource names, what they mean together, and what its readers find on a placed
/// pod. A new dialect is only a file and a row (dialects.cc): code behind the Request does not distinguish dialects.
struct Dialect {
  std::string_view name;
  std::span<const ResourceName> names;  // error texts use the first one as the name of the dialect
  /// Only called when at least one of the owned names is set, and not to zero.
  ///   errors  kInvalidArgument: all faults, each with field, value, unit and what is legal
  Result<Request> (*read)(const Words& words, const PodAsk& pod, const DialectSettings& settings);
  bool (*served)(const DialectSettings& settings) = nullptr;  // nullptr: always
  std::string_view setting = {};  // the line of ConfigMap carve-cluster with which it is served, or that sets a unit
  std::string_view enforced = {};  // what Carve enforces, for documents
  std::string_view original = {};  // what the original system enforced
  /// Starts of the pod annotations that only Carve writes, and that Carve never reads.
  std::span<const std::string_view> shown = {};
  /// See projection.h; nullptr: none.
  Texts (*show)(const Shown& shown) = nullptr;
  Texts (*environment)(const Shown& shown, const RecordPart& part) = nullptr;
  std::string_view together = {};  // the containers of a pod with an equal word are placed on the same cards
  std::string_view scheduler = {};  // the original's own scheduler; admission replaces it in pods of this dialect
  std::span<const std::string_view> labels = {};  // pod labels on which the request depends
  std::span<const std::string_view> annotations = {};  // starts of the annotations on which the request depends
  std::span<const RankingAnnotation> rankings = {};  // read where the pod has no placement of Carve's own
};

Result<Request> read_native(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Result<Request> read_elastic(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Texts show_elastic(const Shown& shown);
Result<Request> read_gpushare(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Texts show_gpushare(const Shown& shown);
Texts environment_of_gpushare(const Shown& shown, const RecordPart& part);
Result<Request> read_cgpu(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Texts show_cgpu(const Shown& shown);
Texts environment_of_cgpu(const Shown& shown, const RecordPart& part);
Result<Request> read_nvidia(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Result<Request> read_hami(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Result<Request> read_qgpu(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Result<Request> read_vcuda(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Texts show_vcuda(const Shown& shown);
/// The pod runs only on nodes with Rancher's label for shared cards: a node selector says so.
[[nodiscard]] bool selects_shared_nodes(const PodAsk& pod);
Result<Request> read_rancher(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Result<Request> read_deepomatic(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Texts environment_of_deepomatic(const Shown& shown, const RecordPart& part);
Result<Request> read_volcano(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Texts show_volcano(const Shown& shown);
Texts environment_of_volcano(const Shown& shown, const RecordPart& part);

/// All dialects there are.
[[nodiscard]] std::span<const Dialect> dialects();
/// The dialect of elasticgpu.io/gpu-memory, gpu-core and gpu, in which Carve itself explains how to request cards.
[[nodiscard]] const Dialect& native_dialect();
/// The native resource names that say the request, with their amounts.
///   in  a request in bytes, or for whole cards
[[nodiscard]] std::vector<std::pair<std::string_view, std::uint64_t>> native_amounts(const Request& request);
/// Whether an installation with these settings reads the dialect.
[[nodiscard]] bool is_served(const Dialect& dialect, const DialectSettings& settings);
/// The names by which a container requests cards in this dialect.
[[nodiscard]] std::vector<std::string_view> asked_names(const Dialect& dialect);
/// The names under which Nodes show totals with these settings.
[[nodiscard]] std::vector<ResourceName> names_on_nodes(const DialectSettings& settings);
/// The dialect that owns the resource name, in requests or on Nodes; nullptr: none.
[[nodiscard]] const Dialect* owner_of(std::string_view resource);
/// True: only Carve may write the annotation, because it shows a decision of Carve to a dialect's readers.
[[nodiscard]] bool is_shown(std::string_view annotation);
/// The dialects that have the resource name, whether they own it or not.
[[nodiscard]] std::vector<const Dialect*> dialects_with(std::string_view resource);

/// The resource by which the kubelet calls Carve, one per card of a container. Admission adds it to containers that
/// request cards.
inline constexpr std::string_view kSlots = "elasticgpu.io/slot";
/// True: a container of the pod has slots, so the kubelet will ask Carve for its cards. A pod that requests cards but
/// has no slots bypassed admission (a namespace that is excluded, a pod from before Carve, a static pod without slots):
/// it belongs to another system. The result is fixed at the creation of the pod, regardless of later changes to its
/// namespace.
[[nodiscard]] bool carries_slots(const PodAsk& pod);

/// What a Pod requests, in normal form: a pure function of its spec. Empty: the Pod requests nothing from Carve.
///   errors  kInvalidArgument: all faults of all containers, each with the container's name: requests without limits,
///           or different from the limits; two dialects in one container
[[nodiscard]] Result<std::vector<PartRequest>> requests_of(const PodAsk& pod,
                                                           const DialectSettings& settings);
/// The same for a pod that carries slots: what it requests of Carve. Empty for any other pod, regardless of its spec: a
/// decision of Carve about it would have no effect.
[[nodiscard]] Result<std::vector<PartRequest>> requests_by_slots(const PodAsk& pod, const DialectSettings& settings);

}  // namespace carve::codec
