#include "codec/admission/review.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "codec/dialects/pod_ask_json.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
using json_read::text;

constexpr std::string_view kVersion = "admission.k8s.io/v1";

// Resource names under which NVIDIA's device plugin and compatible ones serve cards: nvidia.com/gpu, gpu.shared,
// mig-1g.5gb. Not all of nvidia.com/: the names of NVIDIA's network operator are not cards.
constexpr std::array<std::string_view, 2> kCardNames = {"nvidia.com/gpu", "nvidia.com/mig-"};

const json::object* object_at(const json::value& value, std::string_view path) {
  const auto* found = json_read::at(value, path);
  return found == nullptr ? nullptr : found->if_object();
}

/// True: the container requests cards that the variable itself provides, because their device plugin sets it in its
/// answer to the kubelet. Claims do not count, regardless of their driver. A DRA driver uses CDI, and the runtime
/// applies CDI edits after the container's own environment: the value that a driver of cards sets (Carve's and NVIDIA's
/// set "void") overrides the value here. A claim may also be for other devices than cards.
bool asks_others(const json::value& container) {
  const auto* limits = object_at(container, "resources.limits");
  if (limits == nullptr) return false;
  for (const auto& entry : *limits) {
    const std::string_view key(entry.key().data(), entry.key().size());
    const auto is_card = [&](std::string_view start) { return key.substr(0, start.size()) == start; };
    if (std::any_of(kCardNames.begin(), kCardNames.end(), is_card) && json_read::text_of(&entry.value()) != "0")
      return true;
  }
  return false;
}

ReviewedContainer read_container(const json::value& item, std::string path) {
  ReviewedContainer container;
  container.name = text(item, "name");
  container.path = std::move(path);
  container.has_resources = object_at(item, "resources") != nullptr;
  container.has_limits = object_at(item, "resources.limits") != nullptr;
  container.has_requests = object_at(item, "resources.requests") != nullptr;
  const auto* env = json_read::at(item, "env");
  container.has_env = env != nullptr && env->is_array();
  container.env_from = !json_read::list(item, "envFrom").empty();
  container.asks_others = asks_others(item);
  for (const json::value& claim : json_read::list(item, "resources.claims"))
    container.claims.push_back(text(claim, "name"));
  std::size_t index = 0;
  for (const json::value& entry : json_read::list(item, "env")) {
    if (text(entry, "name") == kVisibleDevices) {
      container.visible.push_back(
          {index, text(entry, "value"), object_at(entry, "valueFrom") != nullptr});
    }
    ++index;
  }
  return container;
}

void read_containers(const json::value& pod, const char* list, bool ephemeral, Review* review) {
  std::size_t index = 0;
  for (const json::value& item : json_read::list(pod, std::string("spec.") + list)) {
    auto container =
        read_container(item, std::string("/spec/") + list + "/" + std::to_string(index++));
    container.ephemeral = ephemeral;
    review->containers.push_back(std::move(container));
  }
}

/// Finds labels and annotations that are not strings. The API server refuses them too, but with a less helpful message.
void read_odd(const json::value& pod, const char* path, Review* review) {
  const auto* all = object_at(pod, path);
  if (all == nullptr) return;
  for (const auto& entry : *all) {
    if (!entry.value().is_string()) review->non_string.emplace_back(entry.key());
  }
}

void read_pod(const json::value& pod, Review* review) {
  auto ask = pod_ask_from(pod);
  if (!ask) {
    review->unreadable = ask.error();
    return;
  }
  review->pod = std::move(*ask);
  read_containers(pod, "initContainers", false, review);
  read_containers(pod, "containers", false, review);
  read_containers(pod, "ephemeralContainers", true, review);
  review->has_annotations = object_at(pod, "metadata.annotations") != nullptr;
  read_odd(pod, "metadata.labels", review);
  read_odd(pod, "metadata.annotations", review);
  review->scheduler = text(pod, "spec.schedulerName");
  review->node = text(pod, "spec.nodeName");
}

}  // namespace

Result<Review> parse_review(std::string_view call) {
  CARVE_TRY(const auto value, json_read::parse(call, "AdmissionReview"));
  if (const auto version = text(value, "apiVersion"); version != kVersion) {
    return fail(Code::kInvalidArgument, "AdmissionReview: apiVersion is \"" +
                                            version.substr(0, 64) + "\"; legal: " +
                                            std::string(kVersion));
  }
  Review review;
  review.uid = text(value, "request.uid");
  if (review.uid.empty())
    return fail(Code::kInvalidArgument, "AdmissionReview: request.uid is missing");
  review.operation = text(value, "request.operation");
  review.resource = text(value, "request.resource.resource");
  review.subresource = text(value, "request.subResource");
  review.user = text(value, "request.userInfo.username");
  if (review.resource != "pods") return review;
  if (const auto* object = json_read::at(value, "request.object");
      object != nullptr && object->is_object()) {
    read_pod(*object, &review);
  } else if (review.operation == "CREATE" || review.operation == "UPDATE") {
    review.unreadable = {Code::kInvalidArgument, "AdmissionReview: request.object is missing"};
  }
  return review;
}

}  // namespace carve::codec
