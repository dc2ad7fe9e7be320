// The frame of every exported function: it checks that the library is initialised and the handle is valid, holds the
// lock, and stores the result for the caller, with NVML's own error for each way to fail.
#pragma once

#include <cstring>
#include <string_view>

#include "base/mutex.h"
#include "sim/model/driver_version.h"
#include "sim/nvml/session.h"

#define CARVE_NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace carve::sim::nvml {

/// The process's library state; library.cc owns it.
struct Library {
  Mutex mutex;
  unsigned users GUARDED_BY(mutex) = 0;  ///< nvmlInit calls without a matching nvmlShutdown
  std::unique_ptr<Session> session GUARDED_BY(mutex);
  int owner_pid GUARDED_BY(mutex) = 0;  ///< after a fork the child opens its own connection
  // Also under the lock. The compiler does not see it in a function that on_library() or on_card() calls.
  Card handles[kMaxCards];
  unsigned visible = 0;
};
Library& library();

/// The session, opened again in a child of fork.
Return live_session(Library& lib, Session** out) REQUIRES(lib.mutex);

/// Everything that a query about one card needs.
struct Here {
  Library& lib;
  Session& session;
  const Card& card;
  const Model& model;
  const CardFacts& facts;
};

/// Runs `f(Session&)` when the library is initialised.
template <class F>
Return on_library(F f) {
  Library& lib = library();
  const MutexLock lock(lib.mutex);
  if (lib.users == 0) return kUninitialized;
  Session* session = nullptr;
  if (Return r = live_session(lib, &session); r != kSuccess) return r;
  return f(*session);
}

/// Runs `f(const Here&)` when `device` is a handle of a visible card.
template <class F>
Return on_card(Device device, F f) {
  Library& lib = library();
  const MutexLock lock(lib.mutex);
  if (lib.users == 0) return kUninitialized;
  Session* session = nullptr;
  if (Return r = live_session(lib, &session); r != kSuccess) return r;
  for (unsigned i = 0; i < lib.visible; ++i) {
    if (device != &lib.handles[i]) continue;
    if (Return r = session->state(lib.handles[i]); r != kSuccess) return r;
    const Machine& machine = session->machine();
    return f(Here{lib, *session, lib.handles[i], *machine.model,
                  machine.cards[lib.handles[i].minor]});
  }
  return kInvalidArgument;
}

/// Writes one value; a null pointer is an error of the caller.
template <class T, class U>
Return put(T* out, U value) {
  if (out == nullptr) return kInvalidArgument;
  *out = static_cast<T>(value);
  return kSuccess;
}

/// Writes text and its NUL into `length` bytes.
inline Return put_text(char* out, unsigned length, std::string_view text) {
  if (out == nullptr) return kInvalidArgument;
  if (length < text.size() + 1) return kInsufficientSize;
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return kSuccess;
}

/// One value of one card.
template <class T, class F>
Return card_value(Device device, T* out, F f) {
  return on_card(device, [&](const Here& here) { return put(out, f(here)); });
}

/// True when a text such as "0000:65:00.0" is this card's bus id (inventory.cc).
bool same_bus(const char* text, const CardFacts& facts);

/// The first word of a process's command line, cut to `length` with its NUL (library.cc).
///   errors  kNotFound: no such process, or a process that this one may not see
Return process_name(unsigned pid, char* out, unsigned length);

/// The sensors' values, computed from the activity of the last second (physical.cc).
struct Vitals {
  std::uint32_t gpu_percent, memory_percent;
  bool contexts;  ///< some process has a context on the card
  std::uint32_t power_mw, celsius, sm_mhz, memory_mhz, pstate;
};
Return read_vitals(const Here& here, Vitals* out);

}  // namespace carve::sim::nvml
