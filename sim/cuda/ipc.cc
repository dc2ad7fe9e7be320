#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>

#include "base/mutex.h"
#include "sim/cuda/memory.h"

// Memory of cuMemAlloc that other processes open. Its bytes move to a file when the program asks for its handle. A
// process that opens the handle finds the file through the creating process, which must have the same PID in both PID
// namespaces.
namespace carve::sim::cu {
namespace {

/// The contents of the handle's 64 bytes.
struct Ticket {
  std::uint64_t magic, token, base, size, span;
  std::int32_t pid, file;
  std::uint32_t card, reserved;
};
constexpr std::uint64_t kTicketMagic = 0x63704974656b6369;
struct CUipcMemHandle {
  char reserved[64];
};
static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));

struct Opened {
  std::uint64_t base = 0;
  unsigned users = 0;
};
Mutex g_opening;
std::map<std::uint64_t, Opened> g_opened GUARDED_BY(g_opening);  // by token

Device* device_of(std::uint32_t card) {
  for (int i = 0; i < Driver::get().device_count(); ++i)
    if (Driver::get().device(i)->card == card) return Driver::get().device(i);
  return nullptr;
}

CUresult open_first(Context* context, const Ticket& ticket, std::uint64_t* base) REQUIRES(g_opening) {
  Block block;
  block.device = device_of(ticket.card);
  if (block.device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const std::string path = "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  const Status status = Driver::get().kernel().call(Op::kOpenShared, 0, ticket.token, 0, &block.handle);
  block.span = ticket.span;
  block.base = status == Status::kOk ? Memory::get().take_addresses(block.span, kGranuleBytes) : 0;
  if (block.base == 0) {
    close(file);
    return status == Status::kOk ? CUDA_ERROR_OUT_OF_MEMORY : error_of(status);
  }
  block.size = ticket.size;
  block.kind = BlockKind::kOpened;
  block.context = context;
  Memory::get().insert(block);
  *base = block.base;
  return Memory::get().back_by_file(block.base, file, false);
}

}  // namespace

CU_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  CU_NEED_CONTEXT(context);
  Block block;
  if (out == nullptr || !Memory::get().find(address, &block) || block.kind != BlockKind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  if (block.span % kGranuleBytes != 0) return CUDA_ERROR_NOT_SUPPORTED;  // small blocks share their pages
  const MutexLock lock(g_opening);
  Ticket ticket{kTicketMagic, 0, block.base, block.size, block.span, getpid(), block.file, block.device->card, 0};
  const Status status = Driver::get().kernel().call(Op::kShare, 0, block.handle, 0, &ticket.token);
  if (status != Status::kOk) return error_of(status);
  if (block.file < 0) {
    ticket.file = memfd_create("carve-sim-ipc", MFD_CLOEXEC);
    const CUresult moved = ticket.file < 0 ? CUDA_ERROR_OUT_OF_MEMORY
                                           : Memory::get().back_by_file(block.base, ticket.file, true);
    if (moved != CUDA_SUCCESS) return moved;
  }
  *out = {};
  __builtin_memcpy(out, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  CU_NEED_CONTEXT(context);
  Ticket ticket;
  __builtin_memcpy(&ticket, &handle, sizeof ticket);
  if (out == nullptr || flags > 1 || ticket.magic != kTicketMagic) return CUDA_ERROR_INVALID_VALUE;
  if (ticket.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // a process does not open its own
  const MutexLock lock(g_opening);
  Opened& opened = g_opened[ticket.token];
  if (opened.users == 0) {
    const CUresult rc = open_first(context, ticket, &opened.base);
    if (rc != CUDA_SUCCESS) return rc;
  }
  ++opened.users;
  *out = opened.base;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(out, handle, flags);
}

CU_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  CU_NEED_INIT();
  const MutexLock lock(g_opening);
  for (auto& [token, opened] : g_opened) {
    if (opened.users == 0 || opened.base != address) continue;
    return --opened.users > 0 ? CUDA_SUCCESS : Memory::get().free(address, BlockKind::kOpened);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace carve::sim::cu
