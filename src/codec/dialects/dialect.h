#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"
#include "core/model/record.h"
#include "core/model/request.h"

namespace carve::codec {

using Texts = std::map<std::string, std::string>;
struct Shown;  // projection.h

/// What an installation decides about the spellings.
struct DialectSettings {
  Bytes gpushare_unit = Bytes::gib(1);  // of aliyun.com/gpu-mem: 1 GiB or 1 MiB
  bool nvidia_by_slots = true;          // false: nvidia.com/gpu is another's, or comes through DRA
};

/// What one container says in one dialect: the values of its resource names, checked to be there as
/// limits and, where there are requests too, the same.
class Words {
 public:
  explicit Words(std::map<std::string_view, std::string> values) : values_(std::move(values)) {}
  /// A whole number of `unit`; nullopt: not written. What is wrong is kept in `errors`.
  std::optional<std::uint64_t> count(std::string_view name, std::uint64_t high,
                                     std::string_view unit, std::vector<Error>* errors) const;
  [[nodiscard]] const std::string* find(std::string_view name) const;

 private:
  std::map<std::string_view, std::string> values_;
};

/// A dialect is one row: its name, the resource names that it owns, what they mean together, and
/// what its readers find on a placed pod. A new one is a file and a row (dialects.cc), nothing
/// else: below the request all are the same.
struct Dialect {
  std::string_view name;
  std::span<const std::string_view> resources;
  std::span<const std::string_view>
      shown;  // annotations of a pod that only Carve writes, and nobody of Carve reads
  /// Only called when at least one of its names is there.
  ///   errors  kInvalidArgument: everything that is wrong, with field, value, unit and what is
  ///   legal
  Result<Request> (*read)(const Words& words, const PodAsk& pod, const DialectSettings& settings);
  /// See projection.h; nullptr: nothing.
  Texts (*show)(const Shown& shown) = nullptr;
  Texts (*environment)(const Shown& shown, const RecordPart& part) = nullptr;
  bool together = false;  // all containers of a pod that speak it stand on the same cards
  std::span<const std::string_view> counts = {};  // further names under which its nodes show what they have
};

Result<Request> read_native(const Words& words, const PodAsk& pod, const DialectSettings& settings);
Result<Request> read_gpushare(const Words& words, const PodAsk& pod,
                              const DialectSettings& settings);
Texts show_gpushare(const Shown& shown);
Texts environment_of_gpushare(const Shown& shown, const RecordPart& part);
Result<Request> read_nvidia(const Words& words, const PodAsk& pod, const DialectSettings& settings);

/// All dialects there are.
[[nodiscard]] std::span<const Dialect> dialects();
/// Whose that resource name is, asked in or shown by nodes; nullptr: nobody's.
[[nodiscard]] const Dialect* dialect_of(std::string_view resource);

/// By what the kubelet calls us, one per card that a container touches: admission adds them to what asks for cards.
inline constexpr std::string_view kSlots = "elasticgpu.io/slot";
/// A container of it has slots, so that Carve will be asked for its cards. Who asks for cards and has none came past
/// admission (a namespace that is left alone, a pod from before Carve, a static pod without them): another system's
/// pod. Fixed when the pod was made, whatever its namespace says later.
[[nodiscard]] bool carries_slots(const PodAsk& pod);

/// What a Pod asks for, in normal form: a pure function of its spec. Empty: nothing of ours.
///   errors  kInvalidArgument: all that is wrong with all of its containers, each with the
///   container's name;
///           requests without limits, or others than the limits (R0-2); two dialects in one
///           container
///   source  design.md 7, spec: unit normaliser
[[nodiscard]] Result<std::vector<PartRequest>> requests_of(const PodAsk& pod,
                                                           const DialectSettings& settings);
/// The same of a pod that carries slots: what it asks of Carve. Empty for any other, whatever stands in it: nothing
/// that Carve decided about it would ever come true.
[[nodiscard]] Result<std::vector<PartRequest>> requests_by_slots(const PodAsk& pod, const DialectSettings& settings);

}  // namespace carve::codec
