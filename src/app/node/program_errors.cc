#include "app/node/program_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace carve::node {
namespace {

/// "namespace/name" of the pods that hold slices of the card.
std::set<std::string> pods_on(const CardId& card, const std::vector<codec::GpuObject>& gpus) {
  std::set<std::string> names;
  for (const auto& gpu : gpus) {
    if (gpu.card.id != card) continue;
    for (const auto& holder : gpu.holders) names.insert(holder.pods.begin(), holder.pods.end());
  }
  return names;
}

std::string words(const ProgramError& error, const std::string& node, std::size_t pods) {
  const std::string which =
      pods == 1 ? "of this pod, the only pod on the card"
                : fmt::format("of one of the {} pods on the card (the driver does not say which)", pods);
  return fmt::format("card {}: {}: a program error {}; the card is healthy. Check which program ended with a CUDA "
                     "error, or find its process in the kernel log of node {}",
                     error.card.str(), error.text, which, node);
}

}  // namespace

std::vector<codec::EventNote> program_error_notes(const std::vector<ProgramError>& errors,
                                                  const std::vector<codec::GpuObject>& gpus,
                                                  const std::vector<codec::NodePod>& pods) {
  std::vector<codec::EventNote> notes;
  for (const auto& error : errors) {
    const auto names = pods_on(error.card, gpus);
    for (const auto& pod : pods) {
      if (!names.contains(pod.namespace_name + "/" + pod.name)) continue;
      notes.push_back(
          {"Pod", pod.namespace_name, pod.name, pod.uid, "GPUProgramError", words(error, pod.node, names.size())});
    }
  }
  return notes;
}

}  // namespace carve::node
