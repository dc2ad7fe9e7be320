#include "sim/cuda/stream.h"

#include "sim/cuda/pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace carve::sim::cu {
namespace {

constexpr long kLookAfterDaemonNs = 500'000'000;

/// Appends without applying the default stream's rules.
std::uint64_t append(Stream* s, const Command& command) REQUIRES(s->lock) {
  while (s->tail - s->cell->completed.load(std::memory_order_acquire) >= kRingSlots) {
    // As on the hardware, a full queue blocks the launch until a command is complete.
    if (wait_for({s->index, s->tail - kRingSlots + 1}) != CUDA_SUCCESS) break;
  }
  const std::uint64_t at = s->tail;
  s->ring[at % kRingSlots] = command;
  s->tail = at + 1;
  s->cell->submitted.store(at + 1, std::memory_order_seq_cst);
  // Only the first command of an empty stream needs to wake the daemon.
  if (s->cell->completed.load(std::memory_order_seq_cst) == at) ring(Driver::get().bell());
  return at + 1;
}

void append_wait(Stream* s, const Stream& other, std::uint64_t target) REQUIRES(s->lock) {
  append(s, {now_ns(), 0, CommandKind::kWait, other.index, target});
}

/// The legacy default stream waits for all blocking streams of its context.
void join_blocking(Stream* legacy) REQUIRES(legacy->lock) {
  const MutexLock lock(legacy->context->mutex);
  for (Stream* other : legacy->context->streams) {
    if (!other->blocking) continue;
    const std::uint64_t target = other->cell->submitted.load(std::memory_order_acquire);
    if (other->cell->completed.load(std::memory_order_acquire) < target)
      append_wait(legacy, *other, target);
  }
}

/// A blocking stream waits for the work already in the legacy default stream.
void join_legacy(Stream* s) REQUIRES(s->lock) {
  const Stream* legacy = s->context->legacy;
  const std::uint64_t target = legacy->cell->submitted.load(std::memory_order_acquire);
  if (target == s->legacy_seen || legacy->cell->completed.load(std::memory_order_acquire) >= target)
    return;
  s->legacy_seen = target;
  append_wait(s, *legacy, target);
}

}  // namespace

std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

CUresult open_stream(Context* context, bool legacy, bool blocking, Stream** out) {
  Driver& driver = Driver::get();
  std::uint64_t index = 0;
  const Status status = driver.kernel().call(Op::kStreamOpen, context->device->card, 0, 0, &index);
  if (status != Status::kOk) return error_of(status);
  auto* stream = new Stream();
  stream->index = static_cast<std::uint32_t>(index);
  driver.stream_card(stream->index).store(context->device->card);
  stream->context = context;
  stream->cell = &driver.channel()->streams[index];
  stream->ring = driver.channel()->rings[index];
  {
    const SpinHold lock(stream->lock);
    stream->tail = stream->cell->submitted.load();
  }
  stream->legacy = legacy;
  stream->blocking = blocking;
  stream->flags = blocking ? 0U : unsigned{CU_STREAM_NON_BLOCKING};
  stream->id = driver.next_id();
  if (legacy) {
    context->legacy = stream;
  } else {
    const MutexLock lock(context->mutex);
    context->streams.push_back(stream);
    if (blocking) context->blocking_streams.fetch_add(1);
  }
  *out = stream;
  return CUDA_SUCCESS;
}

void close_stream(Stream* stream) {
  Context* context = stream->context;
  {
    const MutexLock lock(context->mutex);
    std::erase(context->streams, stream);
    if (stream->blocking && !stream->legacy) context->blocking_streams.fetch_sub(1);
  }
  Driver::get().kernel().call(Op::kStreamClose, 0, stream->index, 0);
  stream->magic = 0;
  delete stream;
}

Stream* per_thread_stream(Context* context) {
  ThreadState& thread = thread_state();
  {
    const MutexLock lock(context->mutex);
    const auto found = context->per_thread.find(thread.number);
    if (found != context->per_thread.end()) return found->second;
  }
  Stream* stream = nullptr;
  if (open_stream(context, false, true, &stream) != CUDA_SUCCESS) return context->legacy;
  stream->thread = thread.number;
  const MutexLock lock(context->mutex);
  context->per_thread[thread.number] = stream;
  return stream;
}

CUresult resolve(CUstream handle, std::uintptr_t zero, Stream** out) {
  auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value == 0) value = zero;
  if (value <= kStreamPerThread) {
    Context* context = t_current;
    if (!alive(context)) return no_context();
    *out = value == kStreamLegacy ? context->legacy : per_thread_stream(context);
    return fault_of(context);
  }
  if (Driver::get().ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  *out = checked(handle);
  return *out == nullptr ? CUDA_ERROR_INVALID_HANDLE : fault_of((*out)->context);
}

std::uint64_t submit(Stream* s, CommandKind kind, std::uint64_t duration_ns, std::uint32_t argument,
                     std::uint64_t target) {
  const SpinHold lock(s->lock);
  if (s->legacy) {
    if (s->context->blocking_streams.load(std::memory_order_relaxed) > 0) join_blocking(s);
  } else if (s->blocking) {
    join_legacy(s);
  }
  return append(s, {now_ns(), duration_ns, kind, argument, target});
}

bool reached(Point point) {
  return Driver::get().channel()->streams[point.index].completed.load(std::memory_order_acquire) >=
         point.target;
}

CUresult wait_for(Point point) {
  Driver& driver = Driver::get();
  StreamCell& cell = driver.channel()->streams[point.index];
  while (!reached(point)) {
    const std::uint32_t word = cell.wake_word.load();
    std::uint64_t before = cell.wait_for.load();
    while (before > point.target && !cell.wait_for.compare_exchange_weak(before, point.target)) {
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (reached(point)) break;
    if (cell.submitted.load() - cell.completed.load() > kExactBacklog) ring(driver.bell());
    timespec patience = {0, kLookAfterDaemonNs};
    if (syscall(SYS_futex, &cell.wake_word, FUTEX_WAIT, word, &patience, nullptr, 0) != 0 &&
        errno == ETIMEDOUT && !driver.kernel().peer_alive())
      return CUDA_ERROR_UNKNOWN;
  }
  // Commands of a dead context count as reached, so that no caller waits for ever.
  return fault_error(driver.channel()->faults[driver.stream_card(point.index).load()].load());
}

CUresult wait_stream(Stream* stream) {
  if (stream->legacy && stream->context->blocking_streams.load() > 0)
    return wait_context(stream->context);
  const CUresult rc = wait_for({stream->index, stream->cell->submitted.load(std::memory_order_acquire)});
  collect_pools();
  return rc;
}

CUresult wait_context(Context* context) {
  std::vector<Point> points;
  {
    const MutexLock lock(context->mutex);
    for (const Stream* s : context->streams)
      points.push_back({s->index, s->cell->submitted.load()});
  }
  points.push_back({context->legacy->index, context->legacy->cell->submitted.load()});
  for (const Point& point : points)
    if (const CUresult rc = wait_for(point); rc != CUDA_SUCCESS) return rc;
  collect_pools();
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
