#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "sim/cuda/cuda_records.h"
#include "sim/model/profiles.h"
#include "sim/protocol/client.h"

// The state of the simulated libcuda in one process: the connection, the visible devices, the contexts, and the calling
// thread's current context. Nothing here knows which program uses the driver.
namespace carve::sim::cu {

struct Device {
  int ordinal = 0;         // the device number that the program uses
  std::uint32_t card = 0;  // the card number on the machine
  Context* primary = nullptr;
  unsigned primary_refs = 0;
  unsigned primary_flags = 0;
  Pool* default_pool = nullptr;
  Pool* current_pool = nullptr;
};

inline constexpr std::uint32_t kContextMagic = 0xC0DE0001;

struct Context {
  std::uint32_t magic = kContextMagic;
  Device* device = nullptr;
  std::uint64_t handle = 0;  // the daemon's handle
  const std::atomic<std::uint32_t>* fault = nullptr;  // the fault that ended it; 0 while it is alive
  std::uint64_t id = 0;
  unsigned flags = 0;
  unsigned api_version = 0;
  bool primary = false;
  unsigned users = 1;  // cuCtxCreate and cuCtxAttach, less cuCtxDetach; under the driver's mutex
  std::atomic<int> blocking_streams{0};  // streams that synchronise with the legacy stream
  Stream* legacy = nullptr;
  Mutex mutex;
  std::vector<Stream*> streams GUARDED_BY(mutex);                           // all except the legacy stream
  std::unordered_map<std::uint64_t, Stream*> per_thread GUARDED_BY(mutex);  // by thread number
  std::vector<Module*> modules GUARDED_BY(mutex);
  std::vector<Context*> peers GUARDED_BY(mutex);  // this context may use the memory of these
  std::size_t limits[16] = {};
};

class Driver {
 public:
  static Driver& get();

  CUresult init(unsigned flags);
  /// CUDA_SUCCESS once cuInit succeeded in this process, not only in its parent.
  [[nodiscard]] CUresult ready() const {
    return state_.load(std::memory_order_acquire) == State::kReady ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_NOT_INITIALIZED;
  }

  [[nodiscard]] int device_count() const { return static_cast<int>(devices_.size()); }
  /// nullptr when the ordinal is not valid.
  Device* device(int ordinal);
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] const Model& model() const { return *machine_.model; }
  [[nodiscard]] const CardFacts& facts(const Device& device) const {
    return machine_.cards[device.card];
  }

  Connection& kernel() { return *kernel_; }
  Channel* channel() { return channel_; }
  Bell* bell() { return bell_; }
  /// Guards devices' primary contexts and the set of contexts.
  Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
  std::vector<Context*>& contexts() REQUIRES(mutex_) { return contexts_; }
  /// The card of one of this process's streams, by the stream's index in the channel.
  std::atomic<std::uint32_t>& stream_card(std::uint32_t index) { return stream_cards_[index]; }
  std::uint64_t next_id() { return next_id_.fetch_add(1); }

 private:
  enum class State { kNew, kReady, kForked };
  Driver() = default;
  static void forked();
  CUresult connect();
  void find_devices();

  std::atomic<State> state_{State::kNew};
  Mutex mutex_;
  std::unique_ptr<Connection> kernel_;
  Channel* channel_ = nullptr;
  Bell* bell_ = nullptr;
  Machine machine_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Context*> contexts_ GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> stream_cards_[kMaxStreams] = {};
  std::atomic<std::uint64_t> next_id_{1};
};

/// The calling thread's context stack.
struct ThreadState {
  std::vector<Context*> stack;
  std::uint64_t number = 0;
  int capture_mode = 0;
};
ThreadState& thread_state();

/// The current context, read with one thread-local load; nullptr when there is none.
extern __thread Context* t_current __attribute__((tls_model("initial-exec")));

/// The error for a call without a usable current context.
CUresult no_context();

[[nodiscard]] inline bool alive(const Context* context) {
  return context != nullptr && context->magic == kContextMagic;
}

/// The error that every call returns once the context has died, until the process ends.
CUresult fault_error(std::uint32_t fault);
[[nodiscard]] inline CUresult fault_of(const Context* context) {
  const std::uint32_t fault = context->fault->load(std::memory_order_relaxed);
  return fault == 0 ? CUDA_SUCCESS : fault_error(fault);
}

/// Prints one line on stderr, once per process for each `flag`.
void say_once(std::atomic<bool>* flag, const char* line);

/// Translates a daemon's status to the driver's error.
CUresult error_of(Status status);

}  // namespace carve::sim::cu

/// The first line of every entry point that needs a context: binds the context to `name` or returns the error.
#define CU_NEED_CONTEXT(name)                                    \
  ::carve::sim::cu::Context* name = ::carve::sim::cu::t_current; \
  if (!::carve::sim::cu::alive(name)) return ::carve::sim::cu::no_context(); \
  if (const auto carve_fault = ::carve::sim::cu::fault_of(name); carve_fault != 0) return carve_fault
#define CU_NEED_INIT()                              \
  if (::carve::sim::cu::Driver::get().ready() != 0) \
  return ::carve::sim::cu::CUDA_ERROR_NOT_INITIALIZED
