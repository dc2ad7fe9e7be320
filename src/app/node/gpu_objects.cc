#include "app/node/gpu_objects.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace carve::node {
namespace {

/// Whether a pod's use of request `use` includes the part. "a" includes the sub-request "a/b".
bool names_request(const std::string& use, const std::string& part) {
  return use.empty() || use == part || part.starts_with(use + "/");
}

void add_part(codec::GpuObject* gpu, const std::string& uid, const std::string& namespace_name, const std::string& pod,
              const std::string& container, const Slice& slice) {
  auto& allocation = gpu->allocated[uid];
  allocation.namespace_name = namespace_name;
  allocation.pod = pod;
  allocation.containers.push_back({container, slice.memory, slice.compute});
}

void add_pod_slice(codec::GpuObject* gpu, const HeldSlice& holding,
                   const std::vector<codec::NodePod>& pods) {
  codec::GpuHolder holder{holding.slice, {}, {}, {}, holding.ending};
  const auto& uid = holding.slice.owner.uid;
  for (const auto& pod : pods) {
    if (pod.uid != uid && (pod.mirror.empty() || pod.mirror != uid)) continue;
    holder.namespace_name = pod.namespace_name;
    holder.name = pod.name;
    holder.pods = {pod.namespace_name + "/" + pod.name};
  }
  add_part(gpu, uid, holder.namespace_name, holder.name, holding.slice.part, holding.slice);
  gpu->holders.push_back(std::move(holder));
}

/// Adds a claim's slice under every container that names the claim, because they share it.
void add_claim_slice(codec::GpuObject* gpu, const HeldSlice& holding,
                     const std::vector<codec::NodePod>& pods, const ClaimNames& claims) {
  codec::GpuHolder holder{holding.slice, {}, {}, {}, holding.ending};
  const auto known = claims.find(holding.slice.owner.uid);
  if (known != claims.end()) {
    holder.namespace_name = known->second.namespace_name;
    holder.name = known->second.name;
  }
  for (const auto& pod : pods) {
    if (pod.ended || known == claims.end() || pod.namespace_name != holder.namespace_name) continue;
    bool uses = false;
    for (const auto& use : pod.claims) {
      if (use.claim != holder.name || !names_request(use.request, holding.slice.part)) continue;
      uses = true;
      add_part(gpu, pod.uid, pod.namespace_name, pod.name, use.container, holding.slice);
    }
    if (uses) holder.pods.push_back(pod.namespace_name + "/" + pod.name);
  }
  if (holder.pods.empty())
    add_part(gpu, holding.slice.owner.uid, holder.namespace_name, "", holding.slice.part, holding.slice);
  gpu->holders.push_back(std::move(holder));
}

void add_local_slice(codec::GpuObject* gpu, const HeldSlice& holding) {
  gpu->holders.push_back({holding.slice, "", holding.label, {}, holding.ending});
  add_part(gpu, holding.slice.owner.uid, "", "", holding.slice.part, holding.slice);
}

std::vector<codec::GpuLink> links_of(const GpuInventory& cards, const CardId& card) {
  std::vector<codec::GpuLink> links;
  for (const auto& other : cards.cards) {
    if (other.id == card) continue;
    const auto link = cards.links.between(card, other.id);
    if (link.level != LinkLevel::kUnknown)
      links.push_back({other.id.str(), std::string(to_string(link.level)), link.lanes});
  }
  return links;
}

}  // namespace

std::string gpu_name(const std::string& node, const CardId& card) {
  std::string name = node + ".";
  for (const char c : card.str()) {
    const auto low = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    name += std::isalnum(static_cast<unsigned char>(low)) != 0 ? low : '-';
  }
  return name;
}

std::vector<codec::GpuObject> gpu_objects(const std::string& node, const GpuInventory& cards,
                                          const std::vector<HeldSlice>& holdings,
                                          const std::vector<codec::NodePod>& pods,
                                          const ClaimNames& claims) {
  std::vector<codec::GpuObject> objects;
  for (std::size_t i = 0; i < cards.cards.size(); ++i) {
    codec::GpuObject gpu;
    gpu.card = cards.cards[i];
    gpu.name = gpu_name(node, gpu.card.id);
    gpu.node = node;
    gpu.index = static_cast<int>(i);
    if (i < cards.pci_bus_ids.size()) gpu.pci_bus_id = cards.pci_bus_ids[i];
    gpu.driver_version = cards.driver_version;
    gpu.cuda_version = cards.cuda_version;
    gpu.links = links_of(cards, gpu.card.id);
    for (const auto& holding : holdings) {
      if (holding.slice.card != gpu.card.id) continue;
      switch (holding.slice.owner.kind) {
        case OwnerKind::kPod:
          add_pod_slice(&gpu, holding, pods);
          break;
        case OwnerKind::kClaim:
          add_claim_slice(&gpu, holding, pods, claims);
          break;
        case OwnerKind::kLocal:
          add_local_slice(&gpu, holding);
          break;
      }
    }
    objects.push_back(std::move(gpu));
  }
  return objects;
}

}  // namespace carve::node
