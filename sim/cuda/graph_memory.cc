#include <algorithm>

#include "base/mutex.h"
#include "sim/cuda/graph.h"

// Memory of alloc nodes. It has its addresses from the creation of the node, is charged to the card at the first launch
// (or upload), and stays charged for the next launch until it is trimmed or the executable graph is destroyed.
namespace carve::sim::cu {
namespace {

Mutex g_mutex;
// Keeps memory that outlives its graph.
std::map<std::uint64_t, std::shared_ptr<GraphMemory>> g_live GUARDED_BY(g_mutex);
std::vector<GraphMemory*> g_all GUARDED_BY(g_mutex);
std::uint64_t g_used_high[kMaxCards] GUARDED_BY(g_mutex);
std::uint64_t g_reserved_high[kMaxCards] GUARDED_BY(g_mutex);

struct Totals {
  std::uint64_t used = 0, reserved = 0;
};

Totals totals(const Device* device) REQUIRES(g_mutex) {
  Totals out;
  for (const GraphMemory* memory : g_all) {
    if (memory->device != device) continue;
    if (memory->live) out.used += memory->size;
    if (memory->handle != 0) out.reserved += memory->size;
  }
  g_used_high[device->card] = std::max(g_used_high[device->card], out.used);
  g_reserved_high[device->card] = std::max(g_reserved_high[device->card], out.reserved);
  return out;
}

void give_back(GraphMemory* memory) {
  if (memory->handle == 0) return;
  Memory::get().forget(memory->base, memory->span);
  Driver::get().kernel().call(Op::kFree, 0, memory->handle, 0);
  memory->handle = 0;
}

}  // namespace

GraphMemory::~GraphMemory() {
  give_back(this);
  if (base != 0) Memory::get().give_addresses(base, span);
  const MutexLock lock(g_mutex);
  std::erase(g_all, this);
}

std::shared_ptr<GraphMemory> make_graph_memory(Device* device, std::uint64_t size) {
  auto memory = std::make_shared<GraphMemory>();
  memory->device = device;
  memory->size = size;
  memory->span = round_to(size, kGranuleBytes);
  memory->base = Memory::get().take_addresses(memory->span, kGranuleBytes);
  if (memory->base == 0) return nullptr;
  const MutexLock lock(g_mutex);
  g_all.push_back(memory.get());
  return memory;
}

CUresult charge_memory(GraphExec* exec) {
  for (const ExecNode& node : exec->nodes) {
    GraphMemory* memory = node.body.memory.get();
    if (node.body.kind != NodeKind::kAlloc || memory->handle != 0) continue;
    const Status status = Driver::get().kernel().call(Op::kAlloc, memory->device->card,
                                                      memory->size, 0, &memory->handle);
    if (status != Status::kOk) return error_of(status);
    const MutexLock lock(g_mutex);
    totals(memory->device);
  }
  return CUDA_SUCCESS;
}

CUresult begin_life(const std::shared_ptr<GraphMemory>& memory, Context* context, bool auto_free) {
  const MutexLock lock(g_mutex);
  if (memory->live && !auto_free) return CUDA_ERROR_INVALID_VALUE;
  memory->live = true;
  g_live[memory->base] = memory;
  totals(memory->device);
  Block block;
  block.base = memory->base;
  block.size = memory->size;
  block.kind = BlockKind::kGraph;
  block.context = context;
  block.device = memory->device;
  Memory::get().insert(block);
  return CUDA_SUCCESS;
}

CUresult end_life(CUdeviceptr address) {
  std::shared_ptr<GraphMemory> memory;
  const MutexLock lock(g_mutex);
  const auto found = g_live.find(address);
  if (found == g_live.end()) return CUDA_ERROR_INVALID_VALUE;
  memory = found->second;
  memory->live = false;
  g_live.erase(found);
  Block block;
  Memory::get().remove(address, &block);
  return CUDA_SUCCESS;
}

bool free_graph_memory(CUdeviceptr address) {
  std::shared_ptr<GraphMemory> memory;
  {
    const MutexLock lock(g_mutex);
    const auto found = g_live.find(address);
    if (found == g_live.end()) return false;
    memory = found->second;
    memory->live = false;
    g_live.erase(found);
  }
  Block block;
  Memory::get().remove(address, &block);
  give_back(memory.get());
  return true;
}

void uncharge(GraphMemory* memory) {
  const MutexLock lock(g_mutex);
  if (!memory->live) give_back(memory);
}

CU_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice dev) {
  CU_NEED_INIT();
  const Device* device = Driver::get().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const MutexLock lock(g_mutex);
  for (GraphMemory* memory : g_all)
    if (memory->device == device && !memory->live) give_back(memory);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, int attribute, void* value) {
  CU_NEED_INIT();
  const Device* device = Driver::get().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || attribute < 0 || attribute > 3) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(g_mutex);
  const Totals now = totals(device);
  const std::uint64_t answers[] = {now.used, g_used_high[device->card], now.reserved,
                                   g_reserved_high[device->card]};
  *static_cast<std::uint64_t*>(value) = answers[attribute];
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, int attribute, void* value) {
  CU_NEED_INIT();
  const Device* device = Driver::get().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  // Only the high-water marks can be set, and only to 0.
  if (value == nullptr || (attribute != 1 && attribute != 3) ||
      *static_cast<std::uint64_t*>(value) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(g_mutex);
  (attribute == 1 ? g_used_high : g_reserved_high)[device->card] = 0;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
