#include "sim/testing/instance.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace carve::sim {
namespace {

constexpr int kStartMs = 20'000;

std::string failed(const std::string& what) { return what + ": " + std::strerror(errno); }

struct Node {
  const char* name;
  unsigned major, minor;
};
constexpr Node kNodes[] = {{"null", 1, 3},    {"zero", 1, 5}, {"full", 1, 7},   {"random", 1, 8},
                           {"urandom", 1, 9}, {"tty", 5, 0},  {"fuse", 10, 229}};
struct Symlink {
  const char* name;
  const char* target;
};
constexpr Symlink kLinks[] = {{"fd", "/proc/self/fd"},
                              {"stdin", "/proc/self/fd/0"},
                              {"stdout", "/proc/self/fd/1"},
                              {"stderr", "/proc/self/fd/2"},
                              {"ptmx", "pts/ptmx"}};
constexpr const char* kKept[] = {"shm", "pts", "mqueue", "net"};

/// Builds a tmpfs with the usual nodes, then moves it over /dev.
std::string private_dev() {
  const std::string fresh = "/run/nvidia-sim";  // empty and owned by this instance: the new /dev is built here
  if (mount("carve-sim-dev", fresh.c_str(), "tmpfs", MS_NOSUID, "mode=755") != 0)
    return failed("mount a tmpfs for /dev");
  for (const Node& node : kNodes) {
    const std::string path = fresh + "/" + node.name;
    if (mknod(path.c_str(), S_IFCHR | 0666, makedev(node.major, node.minor)) != 0)
      return failed("mknod " + path);
    chmod(path.c_str(), 0666);
  }
  for (const Symlink& link : kLinks)
    if (symlink(link.target, (fresh + "/" + link.name).c_str()) != 0) return failed("symlink");
  for (const char* name : kKept) {
    const std::string from = std::string("/dev/") + name;
    const std::string to = fresh + "/" + name;
    struct stat status;
    if (stat(from.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    mkdir(to.c_str(), 0755);
    mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr);
  }
  if (mount(fresh.c_str(), "/dev", nullptr, MS_MOVE, nullptr) != 0)
    return failed("move the tmpfs to /dev");
  return {};
}

}  // namespace

Instance::~Instance() { stop(); }

std::string Instance::library_folder() { return CARVE_SIM_LIB_DIR; }
std::string Instance::daemon_path() { return CARVE_SIMD_PATH; }
std::string Instance::simctl_path() { return CARVE_SIMCTL_PATH; }

void Instance::export_libraries() {
  const char* old = std::getenv("LD_LIBRARY_PATH");
  const std::string value =
      library_folder() + (old != nullptr && *old != '\0' ? ":" + std::string(old) : std::string());
  setenv("LD_LIBRARY_PATH", value.c_str(), 1);
}

std::string Instance::start(const std::string& profile, const std::string& daemon) {
  profile_ = profile;
  daemon_binary_ = daemon.empty() ? daemon_path() : daemon;
  mkdir("/run/nvidia-sim", 0755);
  if (unshare(CLONE_NEWNS) != 0) return failed("a private mount namespace (needs root)");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return failed("make mounts private");
  if (std::string error = private_dev(); !error.empty()) return error;
  if (mount("carve-sim", "/run/nvidia-sim", "tmpfs", MS_NOSUID, "mode=755") != 0)
    return failed("mount /run/nvidia-sim");
  return spawn();
}

std::string Instance::restart() {
  stop();
  return spawn();
}

std::string Instance::spawn() {
  int ready[2];
  if (pipe(ready) != 0) return failed("pipe");
  const pid_t parent = getpid();
  daemon_ = fork();
  if (daemon_ < 0) return failed("fork");
  if (daemon_ == 0) {
    close(ready[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);  // a terminal's interrupt must reach the command, not its driver
    const std::string fd = std::to_string(ready[1]);
    execl(daemon_binary_.c_str(), "carve-simd", "--profile", profile_.c_str(), "--ready-fd",
          fd.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ready[1]);
  pollfd polled = {ready[0], POLLIN, 0};
  char byte = 0;
  const bool up = poll(&polled, 1, kStartMs) == 1 && read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  if (up) return {};
  stop();
  return daemon_binary_ + " --profile " + profile_ + " did not start (its own message is above)";
}

void Instance::stop() {
  if (daemon_ <= 0) return;
  kill(daemon_, SIGTERM);
  waitpid(daemon_, nullptr, 0);
  daemon_ = -1;
}

}  // namespace carve::sim
