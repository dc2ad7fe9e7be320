#include "app/node/program_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace carve::node {
namespace {

/// "namespace/name" of those that hold something of it.
std::set<std::string> pods_on(const CardId& card, const std::vector<codec::GpuObject>& gpus) {
  std::set<std::string> names;
  for (const auto& gpu : gpus) {
    if (gpu.card.id != card) continue;
    for (const auto& holder : gpu.holders) names.insert(holder.pods.begin(), holder.pods.end());
  }
  return names;
}

std::string words(const ProgramError& error, const std::string& node, std::size_t pods) {
  const std::string whose =
      pods == 1 ? "by this pod, which alone has the card"
                : fmt::format("by one of the {} pods on the card, of which the driver names none", pods);
  return fmt::format("card {}: {}: an error of a program, {}; the card is fine. See which program ended with a CUDA "
                     "error, or the kernel's log of node {}, which names its process",
                     error.card.str(), error.text, whose, node);
}

}  // namespace

std::vector<codec::EventNote> program_error_notes(const std::vector<ProgramError>& errors,
                                                  const std::vector<codec::GpuObject>& gpus,
                                                  const std::vector<codec::NodePod>& pods) {
  std::vector<codec::EventNote> notes;
  for (const auto& error : errors) {
    const auto names = pods_on(error.card, gpus);
    for (const auto& pod : pods) {
      if (!names.contains(pod.space + "/" + pod.name)) continue;
      notes.push_back({"Pod", pod.space, pod.name, pod.uid, "GPUProgramError", words(error, pod.node, names.size())});
    }
  }
  return notes;
}

}  // namespace carve::node
