// journal_kills.py preloads this library into `carve up` to kill a process while it writes to a journal. Every write,
// sync, rename, truncation and creation below a folder journal.d passes a point here before and after, a write also in
// the middle. All processes map the control file that CARVE_FAULT_FILE names, and append the points that they passed to
// CARVE_FAULT_FILE.log. The name of that folder is the only thing that this file knows about Carve.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Control {
  std::uint64_t passed;          // points so far, of all processes
  std::uint64_t kill_at;         // the process that passes this point gets SIGKILL; 0: none
  std::uint64_t fail_next_sync;  // the next fdatasync fails with this errno
  std::uint64_t fail_all;        // while not 0, every change of a journal fails with this errno
  std::uint64_t kill_every;      // not 0: after a death, the process that passes this many points later dies as well
};

Control* control() {
  static Control* const mapped = [] {
    const char* path = std::getenv("CARVE_FAULT_FILE");
    const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    return at == MAP_FAILED ? nullptr : static_cast<Control*>(at);
  }();
  return mapped;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// True when `fd` (a file or a folder) is in a journal's folder.
bool is_journal(int fd) {
  const int saved = errno;
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = control() == nullptr ? -1 : readlink(link, path, sizeof path - 1);
  errno = saved;
  return length > 0 && memmem(path, static_cast<std::size_t>(length), "/journal.d", 10) != nullptr;
}

/// True while no journal may be changed; errno gives the reason.
bool refused() {
  const std::uint64_t error = __atomic_load_n(&control()->fail_all, __ATOMIC_SEQ_CST);
  if (error != 0) errno = static_cast<int>(error);
  return error != 0;
}

void pass(const char* what) {
  const int saved = errno;
  static auto* const real_write = next<ssize_t(int, const void*, size_t)>("write");
  const std::uint64_t now = __atomic_add_fetch(&control()->passed, 1, __ATOMIC_SEQ_CST);
  char path[4096];
  std::snprintf(path, sizeof path, "%s.log", std::getenv("CARVE_FAULT_FILE"));
  const int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const int length = std::snprintf(path, sizeof path, "%llu %s\n", static_cast<unsigned long long>(now), what);
  static_cast<void>(real_write(log, path, static_cast<std::size_t>(length)));
  close(log);
  if (now == __atomic_load_n(&control()->kill_at, __ATOMIC_SEQ_CST)) {
    const std::uint64_t every = __atomic_load_n(&control()->kill_every, __ATOMIC_SEQ_CST);
    if (every != 0) __atomic_store_n(&control()->kill_at, now + every, __ATOMIC_SEQ_CST);
    kill(getpid(), SIGKILL);
  }
  errno = saved;
}

template <class Call>
auto around(int fd, const char* before, const char* after, const Call& call) {
  if (!is_journal(fd)) return call();
  if (refused()) return decltype(call())(-1);
  pass(before);
  const auto result = call();
  pass(after);
  return result;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (!is_journal(fd)) return real(fd, data, size);
  if (refused()) return -1;
  pass("before write");
  const ssize_t half = real(fd, data, size / 2);
  if (half < 0) return half;
  pass("half of write");
  const auto done = static_cast<size_t>(half);
  const ssize_t rest = real(fd, static_cast<const char*>(data) + done, size - done);
  pass("after write");
  return rest < 0 ? half : half + rest;
}

int fdatasync(int fd) {
  static auto* const real = next<int(int)>("fdatasync");
  if (is_journal(fd)) {
    const std::uint64_t error = __atomic_exchange_n(&control()->fail_next_sync, 0, __ATOMIC_SEQ_CST);
    if (error != 0) {
      pass("failed fdatasync");
      errno = static_cast<int>(error);
      return -1;
    }
  }
  return around(fd, "before fdatasync", "after fdatasync", [&] { return real(fd); });
}

int fsync(int fd) {
  static auto* const real = next<int(int)>("fsync");
  return around(fd, "before fsync", "after fsync", [&] { return real(fd); });
}

int ftruncate(int fd, off_t size) noexcept {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  return around(fd, "before ftruncate", "after ftruncate", [&] { return real(fd, size); });
}

int renameat(int from, const char* old_name, int to, const char* new_name) noexcept {
  static auto* const real = next<int(int, const char*, int, const char*)>("renameat");
  return around(from, "before rename", "after rename", [&] { return real(from, old_name, to, new_name); });
}

int openat(int folder, const char* name, int flags, ...) {
  static auto* const real = next<int(int, const char*, int, ...)>("openat");
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : mode_t{0};
  va_end(more);
  if ((flags & O_CREAT) == 0) return real(folder, name, flags, mode);
  return around(folder, "before creation", "after creation", [&] { return real(folder, name, flags, mode); });
}

}  // extern "C"
