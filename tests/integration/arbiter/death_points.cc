#include "tests/integration/arbiter/death_points.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

namespace carve::arbiter_test::death_points {
namespace {

/// Shared by the test and the arbiter that it forks.
struct Shared {
  std::atomic<pid_t> victim;
  std::atomic<int> die_at;
  std::atomic<int> passed;
  std::atomic<const char*> last;  // a literal: the same address on both sides of a fork
};

Shared& shared() {
  static auto* const page = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *page;
}
const bool kMappedBeforeAnyFork = (shared(), true);

void pass(const char* call) {
  Shared& all = shared();
  if (all.victim != getpid()) return;
  all.last = call;
  if (++all.passed == all.die_at) kill(getpid(), SIGKILL);
}

}  // namespace

void arm(pid_t victim, int die_at) {
  static_cast<void>(kMappedBeforeAnyFork);
  shared().passed = 0;
  shared().die_at = die_at;
  shared().victim = victim;
}

int disarm() {
  shared().victim = 0;
  return shared().passed;
}

std::string last() {
  const char* call = shared().last;
  return call == nullptr ? "" : call;
}

}  // namespace carve::arbiter_test::death_points

using carve::arbiter_test::death_points::pass;

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {
int __real_mkdir(const char* path, mode_t mode);
int __wrap_mkdir(const char* path, mode_t mode) { return pass("mkdir"), __real_mkdir(path, mode); }
int __real_rmdir(const char* path);
int __wrap_rmdir(const char* path) { return pass("rmdir"), __real_rmdir(path); }
int __real_unlink(const char* path);
int __wrap_unlink(const char* path) { return pass("unlink"), __real_unlink(path); }
int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size) { return pass("ftruncate"), __real_ftruncate(fd, size); }
int __real_posix_fallocate(int fd, off_t offset, off_t size);
int __wrap_posix_fallocate(int fd, off_t offset, off_t size) {
  return pass("posix_fallocate"), __real_posix_fallocate(fd, offset, size);
}
int __real_memfd_create(const char* name, unsigned flags);
int __wrap_memfd_create(const char* name, unsigned flags) {
  return pass("memfd_create"), __real_memfd_create(name, flags);
}
int __real_bind(int fd, const sockaddr* address, socklen_t size);
int __wrap_bind(int fd, const sockaddr* address, socklen_t size) {
  return pass("bind"), __real_bind(fd, address, size);
}
int __real_chmod(const char* path, mode_t mode);
int __wrap_chmod(const char* path, mode_t mode) { return pass("chmod"), __real_chmod(path, mode); }
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  return pass("sendmsg"), __real_sendmsg(fd, message, flags);
}
}
// NOLINTEND(bugprone-reserved-identifier)
