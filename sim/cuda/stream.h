#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "sim/cuda/driver.h"

// Streams and events: the client's side of the rings in protocol/channel.h.
namespace carve::sim::cu {

struct Capture;  // capture.h

inline constexpr std::uint32_t kStreamMagic = 0xC0DE0002;
inline constexpr std::uint32_t kEventMagic = 0xC0DE0003;

class CAPABILITY("mutex") SpinLock {
 public:
  void lock() ACQUIRE() {
    for (int spins = 0; held_.exchange(true, std::memory_order_acquire);)
      if (++spins > 64) sched_yield();
  }
  void unlock() RELEASE() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

/// Holds a SpinLock until the end of the block.
class SCOPED_CAPABILITY SpinHold {
 public:
  explicit SpinHold(SpinLock& lock) ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~SpinHold() RELEASE() { lock_.unlock(); }
  SpinHold(const SpinHold&) = delete;
  SpinHold& operator=(const SpinHold&) = delete;

 private:
  SpinLock& lock_;
};

struct Stream {
  std::uint32_t magic = kStreamMagic;
  std::uint32_t index = 0;
  Context* context = nullptr;
  StreamCell* cell = nullptr;
  Command* ring = nullptr;
  SpinLock lock;                            // also guards the ring's free slots
  std::uint64_t tail GUARDED_BY(lock) = 0;  // commands appended
  std::uint64_t legacy_seen = 0;  // the legacy stream's command count that this stream already waits for
  std::atomic<Capture*> capture{nullptr};
  std::atomic<int> host_pending{0};  // host functions not yet run
  bool legacy = false;
  bool blocking = true;  // synchronises with the legacy stream
  int priority = 0;
  unsigned flags = 0;
  std::uint64_t id = 0;
  std::uint64_t thread = 0;  // not 0: the per-thread default stream of that thread
};

/// A point in a stream: "command `target` of stream slot `index` is complete".
struct Point {
  std::uint32_t index = 0;
  std::uint64_t target = 0;  // 0: always reached
};

struct Event {
  std::uint32_t magic = kEventMagic;
  Context* context = nullptr;
  unsigned flags = 0;
  // Records of several threads exclude each other. The members are read without the lock: a program orders its other
  // calls after the record.
  Mutex mutex;
  Point point;  // the point of the last record
  bool recorded = false;
  std::uint32_t slot = kNoTimeSlot;
  Capture* capture = nullptr;        // recorded inside this capture, after the nodes below
  std::vector<GraphNode*> captured;  // see capture
};

/// Opens a stream in the context. `blocking`: synchronises with the legacy default stream.
CUresult open_stream(Context* context, bool legacy, bool blocking, Stream** out);
void close_stream(Stream* stream);

/// The stream of a caller's handle: 0 means `zero` (legacy or per-thread); 1, 2, or an object.
CUresult resolve(CUstream handle, std::uintptr_t zero, Stream** out);
/// The calling thread's default stream in the context, created at first use.
Stream* per_thread_stream(Context* context);

/// Appends a command, after the waits that the default stream's rules require. Blocks while the ring is full. Returns
/// the stream's new command count.
std::uint64_t submit(Stream* stream, CommandKind kind, std::uint64_t duration_ns,
                     std::uint32_t argument = 0, std::uint64_t target = 0);

[[nodiscard]] bool reached(Point point);
/// Waits on a futex until the point is reached.
///   errors  CUDA_ERROR_UNKNOWN when the daemon is gone
CUresult wait_for(Point point);
CUresult wait_stream(Stream* stream);
/// Waits for all streams of the context.
CUresult wait_context(Context* context);

/// Moves bytes (or does other work on the device's behalf) in stream order: immediately when no host function is
/// pending before it, otherwise on the host-function thread.
void in_order(Stream* stream, std::function<void()> action);
/// Appends a host function.
void append_host(Stream* stream, std::function<void()> function);

/// Takes a time slot for a new event; kNoTimeSlot when all are taken.
std::uint32_t take_time_slot();
void return_time_slot(std::uint32_t slot);

std::uint64_t now_ns();

inline Stream* checked(CUstream handle) {
  return handle != nullptr && handle->magic == kStreamMagic ? handle : nullptr;
}

/// Shorthand for entry points: binds `name` to the stream of `handle`.
#define CU_STREAM(name, handle, zero)                                                             \
  ::carve::sim::cu::Stream* name = nullptr;                                                       \
  if (const ::carve::sim::cu::CUresult carve_rc = ::carve::sim::cu::resolve(handle, zero, &name); \
      carve_rc != ::carve::sim::cu::CUDA_SUCCESS)                                                 \
  return carve_rc

}  // namespace carve::sim::cu
