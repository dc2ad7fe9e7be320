#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "codec/node/gpu_object.h"

// The objects of the API server and the calls of kube-scheduler, at their size in a real cluster.
namespace carve::bench {

[[nodiscard]] std::string node_name(std::size_t number);
[[nodiscard]] std::string node_object(std::size_t number);
[[nodiscard]] codec::GpuObject gpu(std::size_t node, std::size_t card);
[[nodiscard]] std::string gpu_object(const codec::GpuObject& gpu);

/// One state of a pod's life.
struct PodMoment {
  std::size_t number = 0;
  std::string node = {};  // empty: not bound
  std::map<std::string, std::string> annotations = {};
  std::string phase = "Pending";
  bool running = false;
  bool deleting = false;
};
[[nodiscard]] std::string pod_uid(std::size_t number);
/// About 5 KB, including managedFields; `managed` false: as kube-scheduler sends it, without managedFields.
[[nodiscard]] std::string pod_object(const PodMoment& moment, bool managed = true);
[[nodiscard]] std::string event(const char* type, const std::string& object);
[[nodiscard]] std::string choose_call(std::size_t pod, const std::vector<std::string>& names);
[[nodiscard]] std::string bind_call(std::size_t pod, const std::string& node);

}  // namespace carve::bench
