#include "core/claims/elastic.h"

#include <algorithm>
#include <array>

namespace carve {
namespace {

constexpr std::string_view kNotHere = "the devices of this provisioner are not supported yet";

constexpr std::array<Provisioner, 8> kProvisioners = {{
    {"qgpu", "memory and compute, by the node's share policy", "qgpu", ShareClass::kNode},
    {"cgpu", "memory and compute, by the node's share policy", "cgpu", ShareClass::kNode},
    {"vcuda", "memory and a compute cap", "vcuda", ShareClass::kFixed},
    {"gpushare", "memory; compute is what the neighbours leave", "gpushare", ShareClass::kBestEffort},
    {"physical", "a whole card", "native", ShareClass::kBurst, true},
    {"mig", "a partition of the hardware", "native", ShareClass::kFixed, false, kNotHere},
    {"vgpu", "a virtual GPU of the hypervisor", "native", ShareClass::kFixed, false, kNotHere},
    {"remote", "a card of another machine", "native", ShareClass::kFixed, false, kNotHere},
}};
constexpr std::string_view kDomain = "elasticgpu.io";
constexpr std::string_view kOldDomain = ".provisioner.elasticgpu.io";

}  // namespace

const Provisioner* provisioner_named(std::string_view name) {
  const auto slash = name.find('/');
  std::string_view word;
  if (slash != std::string_view::npos && name.substr(0, slash) == kDomain) word = name.substr(slash + 1);
  if (name.ends_with(kOldDomain)) word = name.substr(0, name.size() - kOldDomain.size());
  const auto* found = std::find_if(kProvisioners.begin(), kProvisioners.end(),
                                   [&](const Provisioner& row) { return row.name == word; });
  return found == kProvisioners.end() ? nullptr : found;
}

std::string provisioner_names() {
  std::string text;
  for (const Provisioner& row : kProvisioners)
    text += (text.empty() ? "" : ", ") + std::string(kDomain) + "/" + std::string(row.name);
  return text;
}

bool keeps_room(std::string_view phase) {
  return phase == to_string(GpuPhase::kAvailable) || phase == to_string(GpuPhase::kBound) ||
         phase == to_string(GpuPhase::kReleased);
}

std::string_view to_string(GpuPhase phase) {
  constexpr std::array<std::string_view, 5> kWords = {"Pending", "Available", "Bound", "Released", "Failed"};
  return kWords[static_cast<std::size_t>(phase)];
}

std::string_view to_string(ClaimPhase phase) {
  constexpr std::array<std::string_view, 3> kWords = {"Pending", "Bound", "Lost"};
  return kWords[static_cast<std::size_t>(phase)];
}

std::string card_list(const std::vector<std::string>& cards) {
  std::string text;
  for (const std::string& card : cards) text += (text.empty() ? "" : ",") + card;
  return text;
}

std::string card_list(const std::vector<CardId>& cards) {
  std::vector<std::string> names;
  for (const CardId& card : cards) names.push_back(card.str());
  return card_list(names);
}

bool serves(const ElasticGpu& gpu, const Request& wanted, Bytes card_memory, std::string_view model) {
  if (gpu.request.count != wanted.count) return false;
  if (gpu.request.whole || wanted.whole) return gpu.request.whole == wanted.whole;
  const auto compute = wanted.compute.on(model);
  return gpu.request.memory.on(card_memory) >= wanted.memory.on(card_memory) && compute &&
         gpu.request.compute.share() >= *compute;
}

}  // namespace carve
