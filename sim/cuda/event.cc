#include "base/mutex.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/stream.h"

namespace carve::sim::cu {
namespace {

SpinLock g_slots_lock;
std::vector<std::uint32_t> g_free_slots GUARDED_BY(g_slots_lock);
std::uint32_t g_next_slot GUARDED_BY(g_slots_lock) = 0;

Event* checked_event(CUevent event) {
  return event != nullptr && event->magic == kEventMagic ? event : nullptr;
}

CUresult record(CUevent handle, CUstream stream_handle, std::uintptr_t zero) {
  CU_STREAM(stream, stream_handle, zero);
  Event* event = checked_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture.load() != nullptr) return capture_event_record(stream, event);
  if (const CUresult rc = refuse_implicit(stream); rc != CUDA_SUCCESS) return rc;
  const MutexLock lock(event->mutex);
  const std::uint64_t target = submit(stream, CommandKind::kMark, 0, event->slot);
  event->point = {stream->index, target};
  event->recorded = true;
  event->capture = nullptr;
  return CUDA_SUCCESS;
}

CUresult wait_event(CUstream stream_handle, CUevent handle, unsigned flags, std::uintptr_t zero) {
  CU_STREAM(stream, stream_handle, zero);
  Event* event = checked_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (event->capture != nullptr || stream->capture.load() != nullptr)
    return capture_event_wait(stream, event);
  Point point;
  {
    const MutexLock lock(event->mutex);
    if (!event->recorded) return CUDA_SUCCESS;
    point = event->point;
  }
  if (point.index != stream->index && !reached(point))
    submit(stream, CommandKind::kWait, 0, point.index, point.target);
  return CUDA_SUCCESS;
}

}  // namespace

std::uint32_t take_time_slot() {
  const SpinHold lock(g_slots_lock);
  if (!g_free_slots.empty()) {
    const std::uint32_t slot = g_free_slots.back();
    g_free_slots.pop_back();
    return slot;
  }
  return g_next_slot < kMaxTimeSlots ? g_next_slot++ : kNoTimeSlot;
}

void return_time_slot(std::uint32_t slot) {
  if (slot == kNoTimeSlot) return;
  const SpinHold lock(g_slots_lock);
  g_free_slots.push_back(slot);
}

CU_EXPORT CUresult cuEventCreate(CUevent* out, unsigned flags) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto* event = new Event();
  event->context = context;
  event->flags = flags;
  if ((flags & CU_EVENT_DISABLE_TIMING) == 0) {
    event->slot = take_time_slot();
    if (event->slot == kNoTimeSlot) {
      delete event;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  *out = event;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
  CU_NEED_INIT();
  Event* event = checked_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A record that is still in flight writes its time later. Its time slot therefore goes to no other event.
  if (!event->recorded || reached(event->point)) return_time_slot(event->slot);
  event->magic = 0;
  delete event;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

CU_EXPORT CUresult cuEventRecord(CUevent e, CUstream s) { return record(e, s, kStreamLegacy); }
CU_EXPORT CUresult cuEventRecord_ptsz(CUevent e, CUstream s) {
  return record(e, s, kStreamPerThread);
}
CU_EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(e, s, kStreamLegacy);
}
CU_EXPORT CUresult cuEventRecordWithFlags_ptsz(CUevent e, CUstream s, unsigned flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(e, s, kStreamPerThread);
}
CU_EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
  return wait_event(s, e, flags, kStreamLegacy);
}
CU_EXPORT CUresult cuStreamWaitEvent_ptsz(CUstream s, CUevent e, unsigned flags) {
  return wait_event(s, e, flags, kStreamPerThread);
}

CU_EXPORT CUresult cuEventQuery(CUevent handle) {
  CU_NEED_INIT();
  Event* event = checked_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  if (!event->recorded) return CUDA_SUCCESS;
  if (const CUresult rc = fault_of(event->context); rc != CUDA_SUCCESS) return rc;
  return reached(event->point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CU_EXPORT CUresult cuEventSynchronize(CUevent handle) {
  CU_NEED_INIT();
  Event* event = checked_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  const CUresult rc = event->recorded ? wait_for(event->point) : CUDA_SUCCESS;
  collect_pools();
  return rc;
}

CU_EXPORT CUresult cuEventElapsedTime_v2(float* ms, CUevent start_handle, CUevent end_handle) {
  CU_NEED_INIT();
  Event* start = checked_event(start_handle);
  Event* end = checked_event(end_handle);
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (ms == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (start->slot == kNoTimeSlot || end->slot == kNoTimeSlot || !start->recorded || !end->recorded)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!reached(start->point) || !reached(end->point)) return CUDA_ERROR_NOT_READY;
  const auto& slots = Driver::get().channel()->time_slots;
  const auto from = static_cast<std::int64_t>(slots[start->slot].load());
  const auto to = static_cast<std::int64_t>(slots[end->slot].load());
  *ms = static_cast<float>(static_cast<double>(to - from) / 1e6);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(ms, start, end);
}

CU_EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent handle) {
  CU_NEED_INIT();
  Event* event = checked_event(handle);
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // The default stream waits for all blocking streams; the others are waited for one after the other.
  std::vector<Point> points;
  {
    const MutexLock lock(context->mutex);
    for (const Stream* s : context->streams)
      if (!s->blocking) points.push_back({s->index, s->cell->submitted.load()});
  }
  for (const Point& point : points)
    if (!reached(point)) submit(context->legacy, CommandKind::kWait, 0, point.index, point.target);
  const MutexLock lock(event->mutex);
  event->point = {context->legacy->index,
                  submit(context->legacy, CommandKind::kMark, 0, event->slot)};
  event->recorded = true;
  event->capture = nullptr;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
