#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

// The calls of the API server to an admission webhook (admission.k8s.io/v1 AdmissionReview), as far as Carve needs
// them: Pods and their subresources.
namespace carve::codec {

/// The variable that tells NVIDIA's container runtimes which cards to mount, regardless of its author.
inline constexpr std::string_view kVisibleDevices = "NVIDIA_VISIBLE_DEVICES";

/// One container under review: what admission checks in addition to its request.
struct ReviewedContainer {
  /// An entry of its own environment that is named NVIDIA_VISIBLE_DEVICES.
  struct Visible {
    std::size_t index = 0;  // in `env`
    std::string value;
    bool from = false;  // its value comes from another object (valueFrom) and is unknown here
  };
  std::string name;
  std::string path;  // JSON pointer: /spec/initContainers/0
  bool ephemeral = false;
  bool has_limits = false;  // the map exists, so a member can be added to it
  bool has_requests = false;
  bool has_resources = false;
  bool has_env = false;
  bool env_from = false;     // imports whole ConfigMaps or Secrets as variables
  bool asks_others = false;  // requests cards of another device plugin: nvidia.com/gpu…, nvidia.com/mig-…
  std::vector<std::string> claims;  // the names in its resources.claims, of any devices
  std::vector<Visible> visible;
};

/// A review of a Pod or of one of its subresources.
struct Review {
  std::string uid;
  std::string operation;    // CREATE, UPDATE, DELETE, CONNECT
  std::string resource;     // pods
  std::string subresource;  // empty: the object
  std::string user;
  Error unreadable;  // empty text: the object can be read; else everything below is empty
  PodAsk pod;        // its request: init containers and main containers
  std::vector<ReviewedContainer> containers;  // the same containers in the same order, then ephemeral ones
  bool has_annotations = false;
  std::vector<std::string> non_string;  // labels and annotations with a value that is not a string
  std::string scheduler;
  std::string node;
};

/// Tolerant: what is missing is empty. An object of another kind is read as one without containers.
///   errors  kInvalidArgument: not JSON, another version than admission.k8s.io/v1, or no request with a UID, which an
///           answer needs
[[nodiscard]] Result<Review> parse_review(std::string_view text);

}  // namespace carve::codec
