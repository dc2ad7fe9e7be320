#pragma once

// One word of shared memory that another process reads or writes at the same time.
//
// Every store to shared memory uses this class, so that the test build of the library (CARVE_KILL_POINTS) can die
// before and after each store. tests/isolation counts the call sites and visits all of them. Freestanding: no libc.

namespace carve::abi {

#if defined(CARVE_KILL_POINTS)
extern "C" void carve_kill_point(const char* file, int line);
#define CARVE_ABI_KILL_POINT(file, line) carve_kill_point(file, line)
#else
#define CARVE_ABI_KILL_POINT(file, line) (static_cast<void>(file), static_cast<void>(line))
#endif

template <class T>
struct Cell {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shared word is 4 or 8 bytes");
  T raw;

  [[nodiscard]] T load_relaxed() const { return __atomic_load_n(&raw, __ATOMIC_RELAXED); }
  [[nodiscard]] T load_acquire() const { return __atomic_load_n(&raw, __ATOMIC_ACQUIRE); }
  [[nodiscard]] T load_seq_cst() const { return __atomic_load_n(&raw, __ATOMIC_SEQ_CST); }

  void store_relaxed(T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    store<__ATOMIC_RELAXED>(value, file, line);
  }
  void store_release(T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    store<__ATOMIC_RELEASE>(value, file, line);
  }
  void store_seq_cst(T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    store<__ATOMIC_SEQ_CST>(value, file, line);
  }
  /// Adds `value` and returns the previous value. Sequentially consistent.
  T fetch_add(T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    CARVE_ABI_KILL_POINT(file, line);
    const T before = __atomic_fetch_add(&raw, value, __ATOMIC_SEQ_CST);
    CARVE_ABI_KILL_POINT(file, line);
    return before;
  }
  /// Subtracts `value` and returns the previous value. Sequentially consistent.
  T fetch_sub(T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    CARVE_ABI_KILL_POINT(file, line);
    const T before = __atomic_fetch_sub(&raw, value, __ATOMIC_SEQ_CST);
    CARVE_ABI_KILL_POINT(file, line);
    return before;
  }
  /// Stores `desired` and returns true if the word contained `expected`; otherwise returns false.
  bool compare_exchange(T expected, T desired, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
    CARVE_ABI_KILL_POINT(file, line);
    const bool done = __atomic_compare_exchange_n(&raw, &expected, desired, false, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_SEQ_CST);
    CARVE_ABI_KILL_POINT(file, line);
    return done;
  }

 private:
  template <int Order>
  void store(T value, [[maybe_unused]] const char* file, [[maybe_unused]] int line) {
    CARVE_ABI_KILL_POINT(file, line);
    __atomic_store_n(&raw, value, Order);
    CARVE_ABI_KILL_POINT(file, line);
  }
};

}  // namespace carve::abi
