#include "codec/node/gpu_object.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
namespace read = json_read;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::size_t kNamedHolders = 4;

std::int64_t number_of(Bytes bytes) { return static_cast<std::int64_t>(bytes.count()); }

/// Card memory in whole MiB and compute in 1/100, under the established resource names.
json::object resources(Bytes memory, std::int64_t cores) {
  return {{"elasticgpu.io/gpu-memory", std::to_string(number_of(memory) / kMiB)},
          {"elasticgpu.io/gpu-core", std::to_string(cores)}};
}

void add(json::object* to, const char* key, const std::string& text) {
  if (!text.empty()) (*to)[key] = text;
}

json::object spec_of(const GpuObject& gpu) {
  json::object spec{{"index", gpu.index},
                    {"uuid", gpu.card.id.str()},
                    {"memory", number_of(gpu.card.memory)},
                    {"nodeName", gpu.node}};
  add(&spec, "model", gpu.card.model);
  if (gpu.card.minor >= 0) spec["path"] = "/dev/nvidia" + std::to_string(gpu.card.minor);
  add(&spec, "vendor", gpu.card.vendor);
  add(&spec, "architecture", gpu.card.architecture);
  add(&spec, "computeCapability", gpu.card.compute_capability);
  add(&spec, "pciBusID", gpu.pci_bus_id);
  add(&spec, "pcieRoot", gpu.card.pcie_root);
  if (gpu.card.numa_node >= 0) spec["numaNode"] = gpu.card.numa_node;
  add(&spec, "driverVersion", gpu.driver_version);
  add(&spec, "cudaVersion", gpu.cuda_version);
  json::array links;
  for (const auto& link : gpu.links) {
    json::object one{{"uuid", link.uuid}, {"level", link.level}};
    if (link.lanes > 0) one["lanes"] = link.lanes;
    links.push_back(std::move(one));
  }
  if (!links.empty()) spec["links"] = std::move(links);
  // A control of an earlier build reads the second name.
  for (const char* name : {"plugins", "doors"})
    if (!gpu.plugins.empty()) spec[name] = json::array(gpu.plugins.begin(), gpu.plugins.end());
  return spec;
}

std::string owner_name(const GpuHolder& holder) {
  const auto& name = holder.pods.empty() ? holder.name : holder.pods.front();
  if (name.empty())
    return std::string(to_string(holder.slice.owner.kind)) + " " + holder.slice.owner.uid;
  return holder.pods.empty() && !holder.namespace_name.empty() ? holder.namespace_name + "/" + name : name;
}

std::string summary_of(const GpuObject& gpu) {
  std::string text;
  for (std::size_t i = 0; i < gpu.holders.size() && i < kNamedHolders; ++i) {
    const auto& holder = gpu.holders[i];
    text += (i == 0 ? "" : ", ") + owner_name(holder) + " ";
    text += holder.slice.whole ? "whole"
                               : to_canonical(holder.slice.memory) + "/" +
                                     std::to_string(holder.slice.compute.hundredths());
  }
  if (gpu.holders.size() > kNamedHolders)
    text += ", and " + std::to_string(gpu.holders.size() - kNamedHolders) + " more";
  return text;
}

json::object holder_of(const GpuHolder& holder) {
  const auto& slice = holder.slice;
  json::object owner{{"kind", json_read::json_text(to_string(slice.owner.kind))}, {"uid", slice.owner.uid}};
  add(&owner, "namespace", holder.namespace_name);
  add(&owner, "name", holder.name);
  json::object out{{"owner", std::move(owner)},
                   {"part", slice.part},
                   {"memory", number_of(slice.memory)},
                   {"cores", static_cast<std::int64_t>(slice.compute.hundredths())},
                   {"whole", slice.whole},
                   {"shareClass", json_read::json_text(to_string(slice.share))},
                   {"priorityClass", json_read::json_text(to_string(slice.priority))}};
  if (slice.ceiling != CoreShare::whole()) out["coreLimit"] = static_cast<std::int64_t>(slice.ceiling.hundredths());
  if (slice.exclusive && !slice.whole) out["exclusive"] = true;
  if (slice.phase == Phase::kInit) out["init"] = true;
  if (slice.dialect != "native") out["dialect"] = slice.dialect;
  if (holder.ending) out["ending"] = true;
  json::array pods;
  for (const auto& pod : holder.pods) pods.emplace_back(pod);
  if (!pods.empty()) out["pods"] = std::move(pods);
  return out;
}

json::object allocation_of(const GpuAllocation& allocation) {
  json::array containers;
  for (const auto& one : allocation.containers)
    containers.push_back(json::object{
        {"container", one.name}, {"resource", resources(one.memory, one.compute.hundredths())}});
  json::object out{{"containers", std::move(containers)}};
  add(&out, "namespace", allocation.namespace_name);
  add(&out, "pod", allocation.pod);
  return out;
}

json::object status_of(const GpuObject& gpu) {
  const auto& card = gpu.card;
  Bytes used;
  std::int64_t cores = 0;
  bool exclusive = false;
  json::array holders;
  for (const auto& holder : gpu.holders) {
    used += holder.slice.memory;
    cores += holder.slice.guarantee().hundredths();
    exclusive = exclusive || holder.slice.exclusive;
    holders.push_back(holder_of(holder));
  }
  const auto whole = static_cast<std::int64_t>(card.compute.hundredths());
  const auto none = exclusive || !card.health.ok;
  json::object allocated;
  for (const auto& [uid, allocation] : gpu.allocated) allocated[uid] = allocation_of(allocation);
  json::object status{{"state", card.health.ok ? "Healthy" : "Unhealthy"},
                      {"reason", card.health.reason},
                      {"capacity", resources(card.memory, whole)},
                      {"allocatable", resources(card.health.ok ? card.memory : Bytes(),
                                                card.health.ok ? whole : 0)},
                      {"free", resources(none || used > card.memory ? Bytes() : card.memory - used,
                                         none ? 0 : std::max<std::int64_t>(0, whole - cores))},
                      {"allocated", std::move(allocated)},
                      {"holders", std::move(holders)},
                      {"summary", summary_of(gpu)}};
  return status;
}

std::string put_whole(const char* path, json::object value) {
  return json::serialize(
      json::array{json::object{{"op", "add"}, {"path", path}, {"value", std::move(value)}}});
}

std::size_t hash_of(const json::value& value) { return std::hash<json::value>()(value); }

}  // namespace

std::string encode_gpu(const GpuObject& gpu, std::string_view node_uid) {
  json::object metadata{{"name", gpu.name}};
  if (!node_uid.empty()) {
    metadata["ownerReferences"] = json::array{json::object{
        {"apiVersion", "v1"}, {"kind", "Node"}, {"name", gpu.node}, {"uid", json_read::json_text(node_uid)}}};
  }
  return json::serialize(json::object{{"apiVersion", "elasticgpu.io/v1alpha1"},
                                      {"kind", "GPU"},
                                      {"metadata", std::move(metadata)},
                                      {"spec", spec_of(gpu)}});
}

std::string gpu_spec_patch(const GpuObject& gpu) { return put_whole("/spec", spec_of(gpu)); }

std::string gpu_status_patch(const GpuObject& gpu) { return put_whole("/status", status_of(gpu)); }

GpuDigest digest_of(const GpuObject& gpu) {
  return {gpu.name, hash_of(spec_of(gpu)), hash_of(status_of(gpu))};
}

Result<GpuDigest> parse_gpu_digest(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "GPU"));
  GpuDigest digest;
  digest.name = read::text(value, "metadata.name");
  if (digest.name.empty()) return fail(Code::kInvalidArgument, "GPU: metadata.name is missing");
  if (const auto* spec = read::at(value, "spec")) digest.spec = hash_of(*spec);
  if (const auto* status = read::at(value, "status")) digest.status = hash_of(*status);
  return digest;
}

}  // namespace carve::codec
