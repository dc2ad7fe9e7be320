#include "codec/claims/elastic_objects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "codec/json_read.h"
#include "codec/trimmed.h"

namespace carve::codec {
namespace {

namespace read = json_read;
namespace json = boost::json;
using Amounts = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kHostname = "kubernetes.io/hostname";
constexpr std::string_view kClassAnnotation = "elasticgpu.io/class";

/// The first of these members that is there: the spellings of one field.
std::string any_of(const json::value& value, std::initializer_list<std::string_view> paths) {
  for (const auto path : paths) {
    if (auto text = read::text(value, path); !text.empty()) return text;
  }
  return {};
}

void add_error(std::string* errors, std::string what) { *errors += (errors->empty() ? "" : "; ") + std::move(what); }

/// A policy with two words; the first one by default.
bool is_second(const std::string& field, const std::string& word, std::string_view first, std::string_view second,
               std::string* errors) {
  if (word == second) return true;
  if (!word.empty() && word != first)
    add_error(errors,
              fmt::format("{}: \"{}\" is not legal; legal are {} and {}", field, word.substr(0, 64), first, second));
  return false;
}

std::string amount_text(const json::value& value) {
  return value.is_number() ? json::serialize(value) : read::text_of(&value);
}

Amounts amounts_at(const json::value& value, std::string_view path) {
  Amounts all;
  const auto* found = read::at(value, path);
  if (found == nullptr || !found->is_object()) return all;
  for (const auto& [name, amount] : found->get_object()) all.emplace_back(name, amount_text(amount));
  return all;
}

/// The bytes of an amount with a unit, in which GB means GiB as the field's manifests do; nullopt: it has no unit.
std::optional<Bytes> bytes_with_unit(std::string_view text) {
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count > (1ULL << 32U)) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit == "GB" || unit == "GiB" || unit == "G" || unit == "Gi") return Bytes::gib(count);
  if (unit == "MB" || unit == "MiB" || unit == "M" || unit == "Mi") return Bytes::mib(count);
  return std::nullopt;
}

/// The unit in which a name counts memory; nullopt: the name counts no memory.
std::optional<Bytes> memory_unit(std::string_view name, const DialectSettings& settings) {
  for (const Dialect& dialect : dialects()) {
    for (const ResourceName& one : dialect.names) {
      if (one.name == name && one.unit != nullptr) return one.unit(settings);
    }
  }
  return std::nullopt;
}

std::optional<ElasticClaimRef> claim_ref_of(const json::value& value) {
  ElasticClaimRef ref{read::text(value, "spec.claimRef.namespace"), read::text(value, "spec.claimRef.name"),
               read::text(value, "spec.claimRef.uid")};
  if (ref.name.empty()) return std::nullopt;
  return ref;
}

/// The node that the required affinity names, by its host name.
std::string node_of(const json::value& value) {
  if (auto name = read::text(value, "spec.nodeName"); !name.empty()) return name;
  for (const auto& term : read::list(value, "spec.nodeAffinity.required.nodeSelectorTerms")) {
    for (const auto& match : read::list(term, "matchExpressions")) {
      if (read::text(match, "key") != kHostname || read::text(match, "operator") != "In") continue;
      const auto& names = read::list(match, "values");
      if (names.size() == 1) return read::text_of(&names.front());
    }
  }
  return {};
}

std::vector<std::string> cards_named(const json::value& value) {
  if (auto name = any_of(value, {"spec.gpuShare.gpuName", "spec.qGPU.gpuName"}); !name.empty()) return {name};
  std::vector<std::string> names;
  for (const auto& name : read::list(value, "spec.physicalGPU.gpuNames")) names.push_back(read::text_of(&name));
  return names;
}

bool has_finalizer(const json::value& value) {
  const auto& all = read::list(value, "metadata.finalizers");
  return std::any_of(all.begin(), all.end(),
                     [](const json::value& one) { return read::text_of(&one) == kClaimFinalizer; });
}

json::object at_version(std::string_view version) {
  return {{"metadata", json::object{{"resourceVersion", read::json_text(version)}}}};
}

json::object ref_object(const ElasticClaimRef& claim) {
  return {{"apiVersion", "elasticgpu.io/v1alpha1"},
          {"kind", "ElasticGPUClaim"},
          {"namespace", claim.namespace_name},
          {"name", claim.name},
          {"uid", claim.uid}};
}

}  // namespace

Result<Request> request_of_amounts(const Amounts& amounts, const DialectSettings& settings) {
  ContainerAsk container;
  container.name = "claim";
  for (const auto& [name, amount] : amounts) {
    std::string count = amount;
    const auto unit = memory_unit(name, settings);
    if (const auto bytes = bytes_with_unit(amount); unit && bytes) {
      if (bytes->count() % unit->count() != 0)
        return fail(Code::kInvalidArgument,
                    fmt::format("{}: \"{}\" is not a whole number of {}", name, amount.substr(0, 64), to_human(*unit)));
      count = std::to_string(bytes->count() / unit->count());
    }
    container.limits[name] = count;
  }
  PodAsk pod;
  pod.containers.push_back(std::move(container));
  auto parts = requests_of(pod, settings);
  if (!parts) {
    std::string what = parts.error().what;
    constexpr std::string_view kStart = "container claim: ";
    for (auto at = what.find(kStart); at != std::string::npos; at = what.find(kStart)) what.erase(at, kStart.size());
    return fail(Code::kInvalidArgument, what);
  }
  if (parts->empty())
    return fail(Code::kInvalidArgument,
                "no resource name of a dialect; legal are for example elasticgpu.io/gpu-memory (MiB) "
                "and elasticgpu.io/gpu-core (hundredths of a card)");
  Request request = std::move(parts->front().request);
  // On cards of different models the rate would be different parts, and an ElasticGPU has one size.
  if (request.count != 1 && request.compute.is_tflops())
    return fail(Code::kInvalidArgument,
                fmt::format("{} cards, and compute in TFLOPS; state the compute of several cards in hundredths",
                            request.count));
  return request;
}

Result<ElasticClass> parse_elastic_class(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "ElasticGPUClass"));
  ElasticClass made;
  made.name = read::text(value, "metadata.name");
  if (made.name.empty()) return fail(Code::kInvalidArgument, "ElasticGPUClass: metadata.name is missing");
  made.provisioner = read::text(value, "provisioner");
  made.retain = is_second("reclaimPolicy", read::text(value, "reclaimPolicy"), "Delete", "Retain", &made.error);
  made.waits = is_second("bindingMode",
                         any_of(value, {"bindingMode", "eGPUBindingMode", "egpuBindingMode", "elasticGPUBindingMode"}),
                         "Immediate", "WaitForFirstConsumer", &made.error);
  made.enforced = is_second("parameters.isolation", read::text(value, "parameters.isolation"), "provisioner",
                            "enforced", &made.error);
  if (const auto pods = read::text(value, "parameters.pods"); !pods.empty()) {
    std::uint32_t count = 0;
    const auto [end, error] = std::from_chars(pods.data(), pods.data() + pods.size(), count);
    if (error != std::errc() || end != pods.data() + pods.size() || count < 1 || count > 100) {
      add_error(&made.error,
                fmt::format("parameters.pods: \"{}\" is not legal; legal are 1 to 100 pods", pods.substr(0, 64)));
    } else {
      made.pods = count;
    }
  }
  return made;
}

Result<ElasticClaim> parse_elastic_claim(std::string_view text, const DialectSettings& settings) {
  CARVE_TRY(const auto value, read::parse(text, "ElasticGPUClaim"));
  ElasticClaim claim;
  claim.namespace_name = read::text(value, "metadata.namespace");
  claim.name = read::text(value, "metadata.name");
  claim.uid = read::text(value, "metadata.uid");
  if (claim.name.empty() || claim.uid.empty())
    return fail(Code::kInvalidArgument, "ElasticGPUClaim: metadata.name or metadata.uid is missing");
  claim.version = read::text(value, "metadata.resourceVersion");
  claim.deleting = !read::text(value, "metadata.deletionTimestamp").empty();
  claim.is_protected = has_finalizer(value);
  claim.class_name = any_of(value, {"spec.elasticGPUClassName", "spec.egpuClassName", "spec.storageClassName"});
  claim.gpu = any_of(value, {"spec.elasticGPUName", "spec.egpuName"});
  claim.phase = read::text(value, "status.phase");
  claim.message = read::text(value, "status.message");
  auto amounts = amounts_at(value, "spec.resources.requests");
  if (amounts.empty()) amounts = amounts_at(value, "spec.resources.limits");
  if (auto request = request_of_amounts(amounts, settings)) {
    claim.request = std::move(*request);
  } else {
    claim.error = "spec.resources.requests: " + request.error().what;
  }
  return claim;
}

Result<ElasticGpu> parse_elastic_gpu(std::string_view text, const DialectSettings& settings) {
  CARVE_TRY(const auto value, read::parse(text, "ElasticGPU"));
  ElasticGpu gpu;
  gpu.name = read::text(value, "metadata.name");
  gpu.uid = read::text(value, "metadata.uid");
  if (gpu.name.empty() || gpu.uid.empty())
    return fail(Code::kInvalidArgument, "ElasticGPU: metadata.name or metadata.uid is missing");
  gpu.version = read::text(value, "metadata.resourceVersion");
  gpu.deleting = !read::text(value, "metadata.deletionTimestamp").empty();
  gpu.class_name = read::text_named(read::at(value, "metadata.annotations"), kClassAnnotation);
  gpu.node = node_of(value);
  gpu.cards = cards_named(value);
  gpu.claim = claim_ref_of(value);
  gpu.phase = read::text(value, "status.phase");
  gpu.message = read::text(value, "status.message");
  gpu.shown_node = read::text(value, "status.node");
  gpu.shown_cards = read::text(value, "status.card");
  // Without a policy it is an administrator's object, which stays.
  gpu.retain =
      !is_second("spec.reclaimPolicy", read::text(value, "spec.reclaimPolicy"), "Retain", "Delete", &gpu.error);
  if (gpu.node.empty())
    add_error(&gpu.error, "spec.nodeAffinity.required: names no node by kubernetes.io/hostname In [NAME]");
  if (gpu.cards.empty())
    add_error(&gpu.error,
              "names no card; legal is one of spec.gpuShare.gpuName, spec.qGPU.gpuName and "
              "spec.physicalGPU.gpuNames");
  if (auto request = request_of_amounts(amounts_at(value, "spec.capacity"), settings)) {
    gpu.request = std::move(*request);
    if (gpu.request.compute.is_tflops())
      add_error(&gpu.error, "spec.capacity: an ElasticGPU is a part of one card; state its compute in hundredths "
                            "(elasticgpu.io/gpu-core)");
    if (!gpu.cards.empty() && gpu.cards.size() != gpu.request.count)
      add_error(&gpu.error, fmt::format("names {} card(s), and spec.capacity is of {}", gpu.cards.size(),
                                        gpu.request.count));
  } else {
    add_error(&gpu.error, "spec.capacity: " + request.error().what);
  }
  return gpu;
}

Result<ElasticRoom> parse_elastic_room(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "ElasticGPU"));
  ElasticRoom room{read::text(value, "metadata.name"), read::text(value, "status.node"), {}};
  const auto cards = read::text(value, "status.card");
  for (std::string_view rest = cards; !rest.empty();) room.cards.emplace_back(std::string(next_piece(&rest, ',')));
  if (room.name.empty()) return fail(Code::kInvalidArgument, "ElasticGPU: metadata.name is missing");
  room.kept = keeps_room(read::text(value, "status.phase"));
  return room;
}

std::string encode_elastic_gpu(const ElasticGpu& gpu) {
  json::object capacity;
  for (const auto& [name, amount] : native_amounts(gpu.request))
    capacity[read::json_text(name)] = std::to_string(amount);
  json::object spec{
      {"capacity", std::move(capacity)},
      {"reclaimPolicy", gpu.retain ? "Retain" : "Delete"},
      {"nodeAffinity",
       json::object{
           {"required", json::object{{"nodeSelectorTerms",
                                      json::array{json::object{
                                          {"matchExpressions",
                                           json::array{json::object{{"key", read::json_text(kHostname)},
                                                                    {"operator", "In"},
                                                                    {"values", json::array{gpu.node}}}}}}}}}}}}};
  if (gpu.claim) spec["claimRef"] = ref_object(*gpu.claim);
  if (gpu.request.whole || gpu.cards.size() != 1) {  // the one member for several cards
    spec["physicalGPU"] = json::object{{"gpuNames", json::array(gpu.cards.begin(), gpu.cards.end())}};
  } else {
    spec[gpu.request.dialect == "qgpu" ? "qGPU" : "gpuShare"] = json::object{{"gpuName", gpu.cards.front()}};
  }
  return json::serialize(json::object{
      {"apiVersion", "elasticgpu.io/v1alpha1"},
      {"kind", "ElasticGPU"},
      {"metadata", json::object{{"name", gpu.name},
                                {"annotations", json::object{{read::json_text(kClassAnnotation), gpu.class_name}}}}},
      {"spec", std::move(spec)}});
}

std::string claim_ref_patch(const ElasticGpu& gpu, const ElasticClaimRef& claim) {
  auto patch = at_version(gpu.version);
  patch["spec"] = json::object{{"claimRef", ref_object(claim)}};
  return json::serialize(patch);
}

std::string gpu_name_patch(const ElasticClaim& claim, std::string_view gpu) {
  auto patch = at_version(claim.version);
  patch["spec"] = json::object{{"elasticGPUName", read::json_text(gpu)}};
  return json::serialize(patch);
}

std::string protection_patch(const ElasticClaim& claim, std::string_view text, bool on) {
  json::array finalizers;
  if (const auto value = read::parse(text, "ElasticGPUClaim")) {
    for (const auto& one : read::list(*value, "metadata.finalizers")) {
      if (read::text_of(&one) != kClaimFinalizer) finalizers.push_back(one);
    }
  }
  if (on) finalizers.emplace_back(read::json_text(kClaimFinalizer));
  auto patch = at_version(claim.version);
  patch["metadata"].as_object()["finalizers"] = std::move(finalizers);
  return json::serialize(patch);
}

std::string elastic_gpu_status(GpuPhase phase, std::string_view message, const CardPlace* place) {
  json::object status{{"phase", read::json_text(to_string(phase))}, {"message", read::json_text(message)}};
  if (place != nullptr) {
    status["node"] = place->node;
    status["card"] = card_list(place->cards);
  }
  return json::serialize(json::object{{"status", std::move(status)}});
}

std::string elastic_claim_status(ClaimPhase phase, std::string_view message, const ElasticGpu* gpu,
                                 const CardPlace* place) {
  json::object status{{"phase", read::json_text(to_string(phase))}, {"message", read::json_text(message)}};
  if (gpu != nullptr) {
    status["node"] = gpu->node;
    status["card"] = place != nullptr ? card_list(place->cards) : card_list(gpu->cards);
    const Bytes memory = gpu->request.memory.on(place != nullptr ? place->memory : Bytes());  // of each card
    status["memoryBytes"] = memory.count();
    status["memory"] = (gpu->request.count == 1 ? "" : fmt::format("{} × ", gpu->request.count)) + to_human(memory);
    status["cores"] = gpu->request.compute.share().hundredths();
    status["share"] = gpu->request.whole ? "whole" : read::json_text(to_string(gpu->request.share));
  }
  return json::serialize(json::object{{"status", std::move(status)}});
}

std::string claim_place(std::string_view text) {
  const auto value = read::parse(text, "ElasticGPUClaim");
  if (!value) return {};
  const auto card = read::text(*value, "status.card");
  if (card.empty()) return {};
  return fmt::format("{}, compute {}, {}, on card{} {} of node {}", read::text(*value, "status.memory"),
                     read::number(*value, "status.cores"), read::text(*value, "status.share"),
                     card.find(',') == std::string::npos ? "" : "s", card, read::text(*value, "status.node"));
}

std::vector<PodClaim> claims_of(const PodAsk& pod) {
  std::vector<PodClaim> all;
  for (const auto& [key, claim] : pod.annotations) {
    if (const auto container = container_with_claim(key)) all.push_back({key, std::string(*container), claim});
  }
  return all;
}

ClaimUses claim_uses(const PodAsk& pod, const std::vector<PartRequest>& parts) {
  ClaimUses uses;
  std::vector<std::string> names;
  for (const auto& container : pod.containers) names.push_back(container.name);
  for (auto& use : claims_of(pod)) {
    if (use.container.find('<') != std::string::npos) continue;  // placeholders() reports it
    const std::string what = "annotation " + use.annotation.substr(0, 128);
    const auto refuse = [&](std::string why) {
      uses.errors.push_back({Code::kInvalidArgument, fmt::format("{}: {}", what, std::move(why))});
    };
    const bool requests = std::any_of(parts.begin(), parts.end(),
                                      [&](const PartRequest& part) { return part.part == use.container; });
    const bool second = std::any_of(uses.legal.begin(), uses.legal.end(),
                                    [&](const PodClaim& other) { return other.container == use.container; });
    if (std::find(names.begin(), names.end(), use.container) == names.end()) {
      refuse(fmt::format("there is no container {}; this pod has {}", use.container.substr(0, 64),
                         fmt::join(names, ", ")));
    } else if (use.claim.empty()) {
      refuse("it names no ElasticGPUClaim");
    } else if (requests) {
      refuse(fmt::format("container {} also requests cards by resource names; use only one of them", use.container));
    } else if (second) {
      refuse(fmt::format("container {} uses two claims; legal is one", use.container));
    } else {
      uses.legal.push_back(std::move(use));
    }
  }
  return uses;
}

}  // namespace carve::codec
