#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "app/control/admission/admission_fault.h"
#include "codec/dialects/dialect.h"
#include "codec/settings/cluster_config.h"

namespace carve::codec {
struct Review;
struct ReviewAnswer;
}  // namespace carve::codec

namespace carve::control {

using codec::VisibleDevices;

/// An installation's settings for admission.
struct AdmissionSettings {
  std::string scheduler;  // Carve's own scheduler profile, set on pods that name the default scheduler; empty: there is
                          // no such profile
  VisibleDevices visible = VisibleDevices::kVoid;
};

/// The decisions of the two webhooks about Pods. Pure: the same review returns the same answer on every replica, and no
/// state is kept, so a dry run needs no special case. For a Pod that requests cards, a review
///   - refuses invalid requests and reports all errors together;
///   - adds slots, one per card that a container uses;
///   - sets the scheduler's name;
///   - removes annotations that only Carve may write;
///   - writes the parsed request to the annotation elasticgpu.io/understood, for people; no component reads it;
///   - writes what the validating webhook would check to the annotation elasticgpu.io/admitted. The API server compares
///     it with the final pod (deploy/control/webhook.yaml), and calls that webhook only if they differ.
/// The review of a reviewed object changes nothing. Safe from any thread.
class Admission {
 public:
  /// Called for every refused review, with the faults.
  using Watcher = std::function<void(AdmissionFaults)>;
  Admission(codec::DialectSettings dialects, AdmissionSettings settings, Watcher watcher = {})
      : dialects_(dialects), settings_(std::move(settings)), watcher_(std::move(watcher)) {}

  /// The mutating webhook: takes an AdmissionReview v1 and returns one. Refuses a call that cannot be parsed with an
  /// empty uid; the API server treats that as a failed call.
  ///   cost    O(text), one parse
  [[nodiscard]] std::string mutate(std::string_view review) const;
  /// The validating webhook, which sees the object after all mutating webhooks: returns no patch, and refuses an object
  /// that would need one.
  [[nodiscard]] std::string validate(std::string_view review) const;

 private:
  [[nodiscard]] codec::ReviewAnswer answer(const codec::Review& review, bool validating) const;
  [[nodiscard]] std::string answer_text(std::string_view call, bool validating) const;
  void notify(AdmissionFaults faults) const;

  codec::DialectSettings dialects_;
  AdmissionSettings settings_;
  Watcher watcher_;
};

}  // namespace carve::control
