#include <algorithm>

#include "codec/json_memory.h"
#include "codec/node/gpu_object.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
namespace read = json_read;

/// Reads a whole number from 0 to `high`; false: it is missing or illegal.
bool take_number(const json::value& value, std::string_view path, std::uint64_t high, std::uint64_t* to) {
  const auto* found = read::at(value, path);
  const auto* number = found == nullptr ? nullptr : found->if_int64();
  if (number == nullptr || *number < 0 || static_cast<std::uint64_t>(*number) > high) return false;
  *to = static_cast<std::uint64_t>(*number);
  return true;
}

bool flag(const json::value& value, std::string_view path) {
  const auto* found = read::at(value, path);
  return found != nullptr && found->is_bool() && found->get_bool();
}

bool take_holder(const json::value& value, const CardId& card, GpuHolder* holder) {
  Slice& slice = holder->slice;
  const auto kind = owner_kind_from(read::text(value, "owner.kind"));
  const auto share = share_class_from(read::text(value, "shareClass"));
  const auto priority = priority_class_from(read::text(value, "priorityClass"));
  std::uint64_t memory = 0;
  std::uint64_t cores = 0;
  if (!kind || !share || !priority || !take_number(value, "memory", INT64_MAX, &memory) ||
      !take_number(value, "cores", 100, &cores))
    return false;
  slice.owner = {*kind, read::text(value, "owner.uid")};
  slice.part = read::text(value, "part");
  if (!valid_name(slice.owner.uid) || !valid_name(slice.part)) return false;
  slice.card = card;
  slice.memory = Bytes(memory);
  slice.compute = CoreShare(static_cast<std::uint32_t>(cores));
  if (std::uint64_t limit = 0; take_number(value, "coreLimit", 100, &limit) && limit >= cores && limit > 0)
    slice.ceiling = CoreShare(static_cast<std::uint32_t>(limit));
  slice.whole = flag(value, "whole");
  slice.exclusive = slice.whole || flag(value, "exclusive");
  slice.phase = flag(value, "init") ? Phase::kInit : Phase::kRun;
  slice.share = *share;
  slice.priority = *priority;
  if (auto dialect = read::text(value, "dialect"); !dialect.empty()) slice.dialect = std::move(dialect);
  holder->namespace_name = read::text(value, "owner.namespace");
  holder->name = read::text(value, "owner.name");
  holder->ending = flag(value, "ending");
  for (const auto& pod : read::list(value, "pods")) holder->pods.push_back(read::text_of(&pod));
  return true;
}

void take_what_it_is(const json::value& value, GpuObject* gpu) {
  gpu->index = static_cast<int>(std::clamp<std::int64_t>(read::number(value, "spec.index"), 0, 4096));
  gpu->card.vendor = read::text(value, "spec.vendor");
  gpu->card.model = read::text(value, "spec.model");
  gpu->card.architecture = read::text(value, "spec.architecture");
  gpu->card.compute_capability = read::text(value, "spec.computeCapability");
  gpu->card.pcie_root = read::text(value, "spec.pcieRoot");
  std::uint64_t numa = 0;
  if (take_number(value, "spec.numaNode", 4096, &numa)) gpu->card.numa_node = static_cast<int>(numa);
  gpu->pci_bus_id = read::text(value, "spec.pciBusID");
  gpu->driver_version = read::text(value, "spec.driverVersion");
  gpu->cuda_version = read::text(value, "spec.cudaVersion");
  for (const auto& link : read::list(value, "spec.links")) {
    std::uint64_t lanes = 0;
    (void)take_number(link, "lanes", 255, &lanes);
    gpu->links.push_back({read::text(link, "uuid"), read::text(link, "level"), static_cast<int>(lanes)});
  }
  // An agent of an earlier build writes only the second name.
  for (const char* name : {"spec.plugins", "spec.doors"}) {
    if (!gpu->plugins.empty()) break;
    for (const auto& plugin : read::list(value, name)) gpu->plugins.push_back(read::text_of(&plugin));
  }
}

}  // namespace

Result<GpuObject> parse_gpu_object(std::string_view text, std::size_t* unreadable) {
  read::Memory place(text);
  CARVE_TRY(const auto value, read::parse_in(place, text, "GPU"));
  GpuObject gpu;
  gpu.name = read::text(value, "metadata.name");
  gpu.node = read::text(value, "spec.nodeName");
  gpu.card.id = CardId(read::text(value, "spec.uuid"));
  std::uint64_t memory = 0;
  if (gpu.name.empty() || gpu.node.empty() || !valid_name(gpu.card.id.str()) ||
      !take_number(value, "spec.memory", INT64_MAX, &memory) || memory == 0)
    return fail(Code::kInvalidArgument,
                "GPU \"" + gpu.name.substr(0, 253) + "\": name, spec.nodeName, spec.uuid or spec.memory is missing");
  gpu.card.memory = Bytes(memory);
  take_what_it_is(value, &gpu);
  const auto state = read::text(value, "status.state");
  gpu.card.health.ok = state == "Healthy";
  gpu.card.health.reason = state.empty() ? "its node has not reported its health" : read::text(value, "status.reason");
  for (const auto& item : read::list(value, "status.holders")) {
    GpuHolder holder;
    if (take_holder(item, gpu.card.id, &holder)) {
      gpu.holders.push_back(std::move(holder));
    } else {
      ++*unreadable;
    }
  }
  return gpu;
}

}  // namespace carve::codec
