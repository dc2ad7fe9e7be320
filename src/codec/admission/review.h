#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

// What the API server asks an admission webhook (admission.k8s.io/v1 AdmissionReview), as far as it
// concerns us: Pods and their subresources.
namespace carve::codec {

/// The variable by which NVIDIA's container runtimes are told which cards to give, whoever wrote
/// it.
inline constexpr std::string_view kVisibleDevices = "NVIDIA_VISIBLE_DEVICES";

/// One container under review: what admission looks at besides its request.
struct ReviewedContainer {
  /// An entry of its own environment that is called NVIDIA_VISIBLE_DEVICES.
  struct Visible {
    std::size_t index = 0;  // in `env`
    std::string value;
    bool from = false;  // its value comes from elsewhere (valueFrom) and is not known here
  };
  std::string name;
  std::string path;  // JSON pointer: /spec/initContainers/0
  bool ephemeral = false;
  bool has_limits = false;  // the map is there, so that a member can be added to it
  bool has_requests = false;
  bool has_resources = false;
  bool has_env = false;
  bool env_from = false;     // takes whole ConfigMaps or Secrets as variables
  bool asks_others = false;  // for cards of somebody else's device plugin: nvidia.com/gpu…, nvidia.com/mig-…
  std::vector<std::string> claims;  // names of its resources.claims, whatever devices they are for
  std::vector<Visible> visible;
};

/// A review of a Pod or of one of its subresources.
struct Review {
  std::string uid;
  std::string operation;    // CREATE, UPDATE, DELETE, CONNECT
  std::string resource;     // pods
  std::string subresource;  // empty: the object itself
  std::string user;
  Error unreadable;  // no text: the object can be read; else everything below is empty
  PodAsk pod;        // its ask: init containers and main ones
  std::vector<ReviewedContainer>
      containers;  // the same ones in the same order, then ephemeral ones
  bool has_annotations = false;
  std::vector<std::string> odd;  // labels and annotations whose value is no string
  std::string scheduler;
  std::string node;
};

/// Tolerant: what is missing is empty. Another kind of object is read as one without containers.
///   errors  kInvalidArgument: no JSON, another version than admission.k8s.io/v1, or no request
///   with a uid: there is
///           nobody to answer
[[nodiscard]] Result<Review> parse_review(std::string_view text);

}  // namespace carve::codec
