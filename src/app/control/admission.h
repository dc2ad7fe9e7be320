#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "app/control/admission_fault.h"
#include "codec/dialects/dialect.h"

namespace carve::codec {
struct Review;
struct ReviewAnswer;
}  // namespace carve::codec

namespace carve::control {

/// What happens to NVIDIA_VISIBLE_DEVICES in the environment of a container that asks for no card.
/// Whoever has NVIDIA's container runtime as the node's default would see every card by it, past
/// everybody's limits.
enum class VisibleDevices : std::uint8_t {
  kVoid,    // set to "void", with a warning
  kRefuse,  // the pod is refused
  kLeave,   // nothing: another system gives cards by it
};

/// What an installation decides about admission.
struct AdmissionSettings {
  std::string scheduler;  // of our own profile, for pods that name the default one; empty: there is
                          // no such profile
  VisibleDevices visible = VisibleDevices::kVoid;
};

/// The two webhooks' decisions about Pods. Pure: the same review gives the same answer on every
/// replica, nothing is kept, so that a dry run is one like any other. What is asked for is refused
/// when it is nonsense (everything at once), slots are added (one per card that a container
/// touches), the scheduler's name is set, what only Carve may write is taken out, and what was
/// understood stands in the annotation elasticgpu.io/understood, which nothing reads. Reviewing an
/// object that was reviewed changes nothing. Safe from any thread.
class Admission {
 public:
  /// Is told of every review that was refused what was wrong with it.
  using Watcher = std::function<void(AdmissionFaults)>;
  Admission(codec::DialectSettings dialects, AdmissionSettings settings, Watcher watcher = {})
      : dialects_(dialects), settings_(std::move(settings)), watcher_(std::move(watcher)) {}

  /// The mutating webhook: an AdmissionReview v1 in, one out. A call that cannot be read is refused
  /// with an empty uid, which the API server takes as a failed call.
  ///   cost    O(text), one parse
  [[nodiscard]] std::string mutate(std::string_view review) const;
  /// The validating webhook, after everybody has changed the object: no patch, and refused where
  /// one would be needed.
  [[nodiscard]] std::string validate(std::string_view review) const;

 private:
  [[nodiscard]] codec::ReviewAnswer answer(const codec::Review& review, bool validating) const;
  [[nodiscard]] std::string answer_text(std::string_view call, bool validating) const;
  void tell(AdmissionFaults faults) const;

  codec::DialectSettings dialects_;
  AdmissionSettings settings_;
  Watcher watcher_;
};

}  // namespace carve::control
