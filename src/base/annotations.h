#pragma once

// Clang checks at compile time that a thread holds the lock that these annotations name (-Wthread-safety). g++ ignores
// them. This header includes nothing and defines no code, so lease/, preload/ and sim/ may include it too.
// tools/check_threads runs the check over the tree.
#if defined(__clang__)
#define CARVE_ANNOTATION(x) __attribute__((x))
#else
#define CARVE_ANNOTATION(x)
#endif
// Abseil, which gRPC's headers include, defines four of these names with the same meaning.
#undef GUARDED_BY
#undef PT_GUARDED_BY
#undef ACQUIRED_BEFORE
#undef NO_THREAD_SAFETY_ANALYSIS
/// The class is a lock; `name` appears in the compiler's messages.
#define CAPABILITY(name) CARVE_ANNOTATION(capability(name))
/// The class holds a lock from its construction to its destruction.
#define SCOPED_CAPABILITY CARVE_ANNOTATION(scoped_lockable)
/// The member is read and written only under the lock.
#define GUARDED_BY(lock) CARVE_ANNOTATION(guarded_by(lock))
/// What the pointer points to is read and written only under the lock.
#define PT_GUARDED_BY(lock) CARVE_ANNOTATION(pt_guarded_by(lock))
/// The caller holds the lock.
#define REQUIRES(...) CARVE_ANNOTATION(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) CARVE_ANNOTATION(requires_shared_capability(__VA_ARGS__))
/// The caller does not hold the lock: the function takes it, or waits for a thread that takes it.
#define EXCLUDES(...) CARVE_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) CARVE_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) CARVE_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) CARVE_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) CARVE_ANNOTATION(release_shared_capability(__VA_ARGS__))
/// The caller holds the lock, where the compiler cannot see it (a lambda).
#define ASSERT_CAPABILITY(...) CARVE_ANNOTATION(assert_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) CARVE_ANNOTATION(try_acquire_capability(__VA_ARGS__))
/// This lock is taken before the other one.
#define ACQUIRED_BEFORE(...) CARVE_ANNOTATION(acquired_before(__VA_ARGS__))
#define RETURN_CAPABILITY(lock) CARVE_ANNOTATION(lock_returned(lock))
/// The function follows a rule that the compiler cannot check. A comment says which.
#define NO_THREAD_SAFETY_ANALYSIS CARVE_ANNOTATION(no_thread_safety_analysis)
