#include "app/control/admission/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "codec/admission/answer.h"
#include "codec/admission/review.h"
#include "codec/claims/elastic_objects.h"
#include "codec/dialects/pod_checks.h"
#include "codec/placement/placement_text.h"
#include "codec/record.h"

namespace carve::control {
namespace {

using codec::json_text;
using codec::kSlots;
using codec::pointer_word;
using codec::Review;
using codec::ReviewedContainer;

constexpr std::string_view kOurs = "elasticgpu.io/";
constexpr std::string_view kUnderstood = "elasticgpu.io/understood";
constexpr std::string_view kAdmitted = "elasticgpu.io/admitted";
constexpr std::string_view kDefaultScheduler = "default-scheduler";
constexpr std::string_view kNodes = "system:node:";
constexpr std::string_view kMirror = "kubernetes.io/config.mirror";
// The annotation that the extender of the older elasticgpu.io projects writes when it binds:
// elasticgpu.io/container-NAME = "0,1".
constexpr std::string_view kChosen = "elasticgpu.io/container-";

/// One review in progress.
struct Work {
  const Review& review;
  const codec::DialectSettings& dialects;
  const AdmissionSettings& settings;
  bool validating = false;
  std::vector<Error> errors;
  std::vector<std::string> warnings;
  std::vector<codec::PatchStep> patch;
  std::vector<std::string> missing;  // what the validating webhook expects to find and does not
  AdmissionFaults faults = {};
  bool annotated = false;  // the patch has added an annotation

  void add(std::string path, std::string value) {
    patch.push_back({"add", std::move(path), std::move(value)});
  }
  void refuse(AdmissionFault fault, Error error) {
    faults.set(static_cast<std::size_t>(fault));
    errors.push_back(std::move(error));
  }
  void refuse(AdmissionFault fault, std::string what) {
    refuse(fault, Error{Code::kInvalidArgument, std::move(what)});
  }
  void refuse_all(AdmissionFault fault, std::vector<Error> all) {
    for (Error& one : all) refuse(fault, std::move(one));
  }
};

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

/// A mirror pod: the kubelet runs the static pod's file regardless of the answer.
bool is_mirror(const Review& review) {
  return starts_with(review.user, kNodes) &&
         review.pod.annotations.count(std::string(kMirror)) != 0;
}

/// The container's part of the request; nullptr: the container requests nothing from Carve.
const PartRequest* part_of(const std::vector<PartRequest>& parts, const std::string& name) {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const PartRequest& part) { return part.part == name; });
  return found == parts.end() ? nullptr : &*found;
}

std::string amount_in(const std::map<std::string, std::string>& amounts) {
  const auto found = amounts.find(std::string(kSlots));
  return found == amounts.end() ? std::string() : found->second;
}

/// Removes records and projections that a tenant supplies: Carve did not make that decision.
void strip(Work& work) {
  for (const auto& [key, value] : work.review.pod.annotations) {
    if (!codec::only_carve_writes(key)) continue;
    work.patch.push_back({"remove", "/metadata/annotations/" + pointer_word(key), ""});
    work.missing.push_back("annotation " + key + ": only carve-control may write it");
    work.warnings.push_back("annotation " + key +
                            (starts_with(key, kChosen) ? ": removed; Carve chooses the cards"
                                                       : ": removed; Carve writes it when it places the pod"));
  }
}

/// Without this check an invalid preference would silently have no effect.
void check_placement(Work& work) {
  if (const auto said = codec::placement_of(work.review.pod); !said)
    work.refuse(AdmissionFault::kPlacement, said.error());
}

/// Refuses cards by a claim together with cards by a resource name in one container: both kubelet plugins would mount
/// their libraries over each other, and the intent is unclear. The pod does not say which devices a claim is for.
void check_claims(Work& work, const ReviewedContainer& container, const codec::ContainerAsk& ask) {
  if (container.claims.empty()) return;
  std::vector<std::string_view> names;
  for (const auto& dialect : codec::dialects()) {
    for (const auto& one : dialect.names) {
      if (one.asked && one.owned && ask.limits.count(std::string(one.name)) != 0) names.push_back(one.name);
    }
  }
  work.refuse(
      AdmissionFault::kClaim,
      fmt::format("container {}: resources.claims ({}) together with {}: ambiguous; a container may use only one of "
                  "them. Request cards by the claim alone, or remove the claim; move a claim for another kind of "
                  "device to another container of the pod",
                  container.name, fmt::join(container.claims, ", "), fmt::join(names, ", ")));
}

/// Adds one slot per card that the container uses, to limits and requests.
void put_slots(Work& work, const ReviewedContainer& container, const codec::ContainerAsk& ask,
               const PartRequest& part) {
  const std::string wanted = std::to_string(part.request.count);
  const std::string base = container.path + "/resources";
  if (!container.has_resources) work.add(base, "{}");
  const auto put = [&](const char* map, bool there, const std::string& written) {
    if (written == wanted) return;
    if (!there) work.add(base + "/" + map, "{}");
    work.add(base + "/" + map + "/" + pointer_word(kSlots), json_text(wanted));
    work.missing.push_back(
        fmt::format("container {}: {}: {} is \"{}\", must be \"{}\"", container.name, map, kSlots, written, wanted));
  };
  put("limits", container.has_limits, amount_in(ask.limits));
  put("requests", container.has_requests, amount_in(ask.requests));
}

void check_slots(Work& work, const codec::ContainerAsk& ask) {
  if (amount_in(ask.limits).empty() && amount_in(ask.requests).empty()) return;
  work.refuse(AdmissionFault::kSlots,
              fmt::format("container {}: {} without a request for cards; do not request slots, Carve adds one per card "
                          "(request cards with {})",
                          ask.name, kSlots, codec::native_names()));
}

/// The containers that use ElasticGPUClaims. Control finds out what a claim gives when it places the pod.
std::vector<PartRequest> claim_parts(Work& work, const std::vector<PartRequest>& parts) {
  auto uses = codec::claim_uses(work.review.pod, parts);
  work.refuse_all(AdmissionFault::kClaim, std::move(uses.errors));
  std::vector<PartRequest> all;
  for (const auto& use : uses.legal) all.push_back({use.container, Phase::kRun, {}});
  return all;
}

/// Empty, void and none expose no card on any runtime.
bool is_harmless(const ReviewedContainer::Visible& visible) {
  return !visible.from &&
         (visible.value.empty() || visible.value == "void" || visible.value == "none");
}

/// Ensures that NVIDIA_VISIBLE_DEVICES in a container's environment exposes no card that was not requested. The value
/// that an image sets is not visible here. A value from an envFrom ConfigMap is overridden if the pod is reviewed at
/// all.
void close_environment(Work& work, const ReviewedContainer& container) {
  if (work.settings.visible == VisibleDevices::kLeave || container.asks_others) return;
  const std::string entry =
      fmt::format(R"({{"name":"{}","value":"void"}})", codec::kVisibleDevices);
  for (const auto& visible : container.visible) {
    if (is_harmless(visible)) continue;
    const std::string value =
        visible.from ? "(from elsewhere)" : "\"" + visible.value.substr(0, 64) + "\"";
    const std::string what = fmt::format(
        "container {}: {} = {} {}", container.name, codec::kVisibleDevices, value,
        container.claims.empty() ? "without a request for a card" : "together with claims, which need no variable");
    if (work.settings.visible == VisibleDevices::kRefuse) {
      work.refuse(AdmissionFault::kVisibleDevices,
                  what + "; set it to void or none" +
                      (container.claims.empty()
                           ? fmt::format(", or request a card ({}, …)", codec::native_dialect().names.front().name)
                           : ""));
      continue;
    }
    work.patch.push_back(
        {"replace", fmt::format("{}/env/{}", container.path, visible.index), entry});
    work.missing.push_back(what);
    work.warnings.push_back(what + ": set to void");
  }
  if (!container.visible.empty() || !container.env_from) return;
  if (!container.has_env) work.add(container.path + "/env", "[]");
  work.add(container.path + "/env/-", entry);
}

void annotate(Work& work, std::string_view key, const std::string& value) {
  const auto there = work.review.pod.annotations.find(std::string(key));
  if (there != work.review.pod.annotations.end() && there->second == value) return;
  if (!work.review.has_annotations && !std::exchange(work.annotated, true)) work.add("/metadata/annotations", "{}");
  work.add("/metadata/annotations/" + pointer_word(key), json_text(value));
}

/// Everything in the pod by which the validating webhook decides, as this review leaves it: one word for each extended
/// resource of a container, for each annotation of Carve's, and for each label and annotation that a dialect reads. The
/// API server itself compares it with the final pod, and calls the validating webhook only if they differ
/// (matchConditions in deploy/control/webhook.yaml, which also compares what is the same for all pods). Empty: the pod
/// has a value that is not one word, so the webhook is called.
std::string admitted_words(const Work& work, const std::vector<PartRequest>& parts) {
  std::vector<std::string> words;
  for (const auto& container : work.review.pod.containers) {
    auto limits = container.limits;
    if (const auto* part = part_of(parts, container.name); part != nullptr)
      limits[std::string(kSlots)] = std::to_string(part->request.count);
    for (const auto& [name, value] : limits) {
      if (name.find('/') != std::string::npos) words.push_back(fmt::format("{}:{}={}", container.name, name, value));
    }
  }
  const auto is_read = [](std::string_view key) {
    if (codec::only_carve_writes(key)) return false;  // removed
    if (starts_with(key, kOurs)) return key != kUnderstood && key != kAdmitted;
    const auto& all = codec::dialects();
    return std::any_of(all.begin(), all.end(), [&](const codec::Dialect& dialect) {
      return std::any_of(dialect.annotations.begin(), dialect.annotations.end(),
                         [&](std::string_view start) { return starts_with(key, start); });
    });
  };
  for (const auto& [key, value] : work.review.pod.annotations) {
    if (is_read(key)) words.push_back(key + "=" + value);
  }
  for (const auto& [key, value] : work.review.pod.labels) {
    const auto reads = [&key = key](const codec::Dialect& dialect) {
      return std::find(dialect.labels.begin(), dialect.labels.end(), key) != dialect.labels.end();
    };
    if (const auto all = codec::dialects(); std::any_of(all.begin(), all.end(), reads))
      words.push_back(key + "=" + value);
  }
  const auto broken = [](const std::string& word) { return word.find(' ') != std::string::npos; };
  if (std::any_of(words.begin(), words.end(), broken)) return {};
  return fmt::format("{}", fmt::join(words, " "));
}

/// Writes the annotation for the matchCondition; removes what a tenant wrote there.
void put_admitted(Work& work, const std::string& words) {
  if (!words.empty()) return annotate(work, kAdmitted, words);
  if (work.review.pod.annotations.count(std::string(kAdmitted)) != 0)
    work.patch.push_back({"remove", "/metadata/annotations/" + pointer_word(kAdmitted), ""});
}

/// Whether it is the scheduler of the system in whose dialect the pod requests cards. That scheduler does not know
/// Carve's cards, so the pod would wait forever.
bool is_of_dialect(const std::string& scheduler, const std::vector<PartRequest>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const PartRequest& part) {
    const auto all = codec::dialects();
    return std::any_of(all.begin(), all.end(), [&](const codec::Dialect& dialect) {
      return dialect.name == part.request.dialect && dialect.scheduler == scheduler;
    });
  });
}

/// Completes a pod that requests cards: its scheduler, and the parsed request. `uses_claims`: of ElasticGPUClaims.
void complete(Work& work, const std::vector<PartRequest>& parts, bool uses_claims) {
  const Review& review = work.review;
  if (review.node.empty()) {
    const bool replaced = review.scheduler.empty() || review.scheduler == kDefaultScheduler ||
                          is_of_dialect(review.scheduler, parts);
    if (replaced && !work.settings.scheduler.empty() && work.settings.scheduler != review.scheduler) {
      work.add("/spec/schedulerName", json_text(work.settings.scheduler));
    }
  } else if (!work.validating) {
    work.warnings.push_back(
        "spec.nodeName " + review.node +
        ": the pod bypasses the scheduler; its containers start when Carve finds room on that node");
  }
  std::string understood = to_human(parts);
  for (const auto& use : codec::claims_of(review.pod))
    understood += fmt::format("{}{}: claim {}", understood.empty() ? "" : "; ", use.container, use.claim);
  annotate(work, kUnderstood, understood);
  // The words do not cover claims, so the validating webhook is always called for these pods.
  put_admitted(work, uses_claims ? std::string() : admitted_words(work, parts));
}

void review_pod(Work& work) {
  const Review& review = work.review;
  strip(work);
  if (is_mirror(review)) return put_admitted(work, {});
  for (const auto& key : review.non_string) {
    work.refuse(AdmissionFault::kAnnotation,
                fmt::format("label or annotation {}: its value is not a string; put it in quotes", key.substr(0, 128)));
  }
  work.refuse_all(AdmissionFault::kAnnotation, codec::placeholders(review.pod));
  const auto parts = codec::requests_of(review.pod, work.dialects);
  if (!parts) work.refuse(AdmissionFault::kRequest, parts.error());
  const auto by_claim = parts ? claim_parts(work, *parts) : std::vector<PartRequest>();
  for (const auto& ask : review.pod.containers)
    work.refuse_all(AdmissionFault::kResourceName, codec::unknown_names(ask));
  for (std::size_t i = 0; i < review.containers.size(); ++i) {
    const auto& container = review.containers[i];
    const auto* part = parts ? part_of(*parts, container.name) : nullptr;
    if (part != nullptr && i < review.pod.containers.size()) {
      work.refuse_all(AdmissionFault::kResourceName,
                      codec::unread_names(review.pod.containers[i], work.dialects));
      check_claims(work, container, review.pod.containers[i]);
      put_slots(work, container, review.pod.containers[i], *part);
    } else if (const auto* claimed = part_of(by_claim, container.name); claimed != nullptr) {
      check_claims(work, container, review.pod.containers[i]);
      put_slots(work, container, review.pod.containers[i], *claimed);
    } else if (parts) {
      if (i < review.pod.containers.size()) check_slots(work, review.pod.containers[i]);
      close_environment(work, container);
    }
  }
  if (!parts || (parts->empty() && by_claim.empty())) return put_admitted(work, {});
  check_placement(work);
  complete(work, *parts, !by_claim.empty());
}

/// Ephemeral containers have no request, and therefore get no card.
void review_ephemeral(Work& work) {
  for (const auto& container : work.review.containers) {
    if (container.ephemeral) close_environment(work, container);
  }
}

}  // namespace

codec::ReviewAnswer Admission::answer(const Review& review, bool validating) const {
  Work work{review, dialects_, settings_, validating, {}, {}, {}, {}};
  const bool pod = review.resource == "pods";
  if (pod && !review.unreadable.what.empty()) {
    work.refuse(AdmissionFault::kUnreadable, review.unreadable);
  } else if (pod && review.subresource.empty() && review.operation == "CREATE") {
    review_pod(work);
  } else if (pod && review.subresource == "ephemeralcontainers") {
    review_ephemeral(work);
  }
  codec::ReviewAnswer answer;
  answer.uid = review.uid;
  if (validating && work.errors.empty()) {
    for (const auto& what : work.missing) work.refuse(AdmissionFault::kNotMutated, what);
    if (!work.errors.empty()) {
      work.refuse(
          AdmissionFault::kNotMutated,
          "the mutating webhook carve-admission corrects this: it was not called, or another webhook changed the pod "
          "after it");
    }
  }
  if (const auto refused = joined(work.errors); !refused) {
    answer.refusal = "carve: " + refused.error().what;
    notify(work.faults);
    return answer;
  }
  if (validating) return answer;
  answer.warnings = std::move(work.warnings);
  answer.patch = std::move(work.patch);
  return answer;
}

void Admission::notify(AdmissionFaults faults) const {
  if (watcher_) watcher_(faults);
}

std::string Admission::answer_text(std::string_view call, bool validating) const {
  const auto review = codec::parse_review(call);
  if (review) return codec::to_json(answer(*review, validating));
  notify(AdmissionFaults().set(static_cast<std::size_t>(AdmissionFault::kUnreadable)));
  return codec::to_json({"", "carve: " + review.error().what, {}, {}});
}

std::string Admission::mutate(std::string_view call) const { return answer_text(call, false); }

std::string Admission::validate(std::string_view call) const { return answer_text(call, true); }

}  // namespace carve::control
