// The ways in which a program can reach the driver. Each attack allocates memory through one of them.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/attacks/attack.h"

namespace carve::attacks {
namespace {

constexpr char kLinkName[] = "libcuda.so.1";
constexpr char kPrivateFile[] = "/usr/lib/carve/driver/libcuda.so.1";

int through(const char* name, void* handle, const Options& options) {
  if (!handle) return precondition_missing(name, dlerror());
  return report_and_hold(name, take_memory(in_handle(handle), options.bytes, options.step), options);
}

// Runs this program again as "plain", with another environment or user.
[[noreturn]] void become_plain(const std::string& program, const Options& options, char** environment) {
  const std::string bytes = std::to_string(options.bytes);
  const std::string hold = std::to_string(options.hold_ms);
  const char* args[] = {program.c_str(), "plain", "--bytes", bytes.c_str(), "--hold-ms", hold.c_str(), nullptr};
  execve(program.c_str(), const_cast<char**>(args), environment);
  std::perror("execve");
  _exit(3);
}

bool copy_file(const std::string& from, const std::string& to, mode_t mode) {
  const int in = open(from.c_str(), O_RDONLY | O_CLOEXEC);
  const int out = open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  struct stat facts = {};
  bool done = in >= 0 && out >= 0 && fstat(in, &facts) == 0;
  for (off_t at = 0; done && at < facts.st_size;) {
    done = sendfile(out, in, &at, static_cast<std::size_t>(facts.st_size - at)) > 0;
  }
  done = done && fchmod(out, mode) == 0;
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  return done;
}

std::string scratch_folder() {
  char name[] = "/tmp/carve-attack-XXXXXX";
  return mkdtemp(name) ? name : "";
}

int plain(const Options& o) { return through("plain", dlopen(kLinkName, RTLD_NOW), o); }

int cleared_environment(const Options& o) {
  char* none[] = {nullptr};
  become_plain("/proc/self/exe", o, none);
}

int rtld_next(const Options& o) {
  if (!dlopen(kLinkName, RTLD_NOW | RTLD_GLOBAL)) return precondition_missing("rtld-next", dlerror());
  const Find next = [](const char* name) { return dlsym(RTLD_NEXT, name); };
  return report_and_hold("rtld-next", take_memory(next, o.bytes, o.step), o);
}

int rtld_deepbind(const Options& o) {
  return through("rtld-deepbind", dlopen(kLinkName, RTLD_NOW | RTLD_DEEPBIND), o);
}

int dlmopen_namespace(const Options& o) {
  return through("dlmopen", dlmopen(LM_ID_NEWLM, kLinkName, RTLD_NOW), o);
}

int get_proc_address(const Options& o) {
  void* handle = dlopen(kLinkName, RTLD_NOW);
  if (!handle) return precondition_missing("get-proc-address", dlerror());
  return report_and_hold("get-proc-address", take_memory(by_get_proc_address(handle), o.bytes, o.step), o);
}

int versioned_name(const Options& o) {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    DIR* listing = opendir(folder);
    if (!listing) continue;
    std::string found;
    while (const dirent* entry = readdir(listing)) {
      const std::string name = entry->d_name;
      if (name.starts_with("libcuda.so.") && name != kLinkName) found = std::string(folder) + "/" + name;
    }
    closedir(listing);
    if (!found.empty()) return through("versioned-name", dlopen(found.c_str(), RTLD_NOW), o);
  }
  return precondition_missing("versioned-name", "no libcuda.so.<version> in the usual folders");
}

int forked(const Options& o) {
  // Two children: each stays within the limit alone, and together they exceed it.
  Options half = o;
  half.bytes = o.bytes / 2;
  pid_t children[2] = {};
  for (pid_t& child : children) {
    child = fork();
    if (child == 0) _exit(plain(half));
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return 0;
}

int exec_child(const Options& o) {
  const pid_t child = fork();
  if (child == 0) become_plain(o.self, o, environ);
  waitpid(child, nullptr, 0);
  return 0;
}

int setuid_child(const Options& o) {
  if (geteuid() != 0) return precondition_missing("setuid-child", "only root can make a setuid file of root's");
  const std::string folder = scratch_folder();
  const std::string program = folder + "/attack";
  if (folder.empty() || chmod(folder.c_str(), 0755) != 0 || !copy_file("/proc/self/exe", program, 04755)) {
    return precondition_missing("setuid-child", "no scratch folder");
  }
  const pid_t child = fork();
  if (child == 0) {
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(3);
    become_plain(program, o, environ);
  }
  waitpid(child, nullptr, 0);
  unlink(program.c_str());
  rmdir(folder.c_str());
  return 0;
}

int driver_file_after(const Options& o) {
  dlopen(kLinkName, RTLD_NOW);
  return through("driver-file-after", dlopen(kPrivateFile, RTLD_NOW), o);
}

int driver_file_before(const Options& o) {
  if (!dlopen(kPrivateFile, RTLD_NOW)) return precondition_missing("driver-file-before", dlerror());
  return through("driver-file-before", dlopen(kLinkName, RTLD_NOW), o);
}

int own_copy(const Options& o) {
  const std::string folder = scratch_folder();
  if (folder.empty() || !copy_file(kPrivateFile, folder + "/libcuda.so.1", 0755)) {
    return precondition_missing("own-copy", "the driver's file cannot be copied");
  }
  const pid_t child = fork();
  if (child == 0) {
    setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
    become_plain("/proc/self/exe", o, environ);
  }
  waitpid(child, nullptr, 0);
  unlink((folder + "/libcuda.so.1").c_str());
  rmdir(folder.c_str());
  return 0;
}

// To the library this is an honest user: it has sent a hello and holds a little memory. It allocates the rest from the
// driver's own file.
void* after_a_hello(const Options& o) {
  void* const library = dlopen(kLinkName, RTLD_NOW);
  if (!library || take_memory(in_handle(library), o.step, o.step).bytes == 0) return nullptr;
  return dlopen(kPrivateFile, RTLD_NOW);
}

int registered_memory(const Options& o) { return through("registered-memory", after_a_hello(o), o); }

constexpr Attack kAttacks[] = {
    {"plain", plain},
    {"cleared-environment", cleared_environment},
    {"rtld-next", rtld_next},
    {"rtld-deepbind", rtld_deepbind},
    {"dlmopen", dlmopen_namespace},
    {"get-proc-address", get_proc_address},
    {"versioned-name", versioned_name},
    {"fork", forked},
    {"exec-child", exec_child},
    {"setuid-child", setuid_child},
    {"driver-file-after", driver_file_after},
    {"driver-file-before", driver_file_before},
    {"own-copy", own_copy},
    {"registered-memory", registered_memory},
    {"registered-compute", registered_compute},
    {"queued-compute", queued_compute},
    {"compute-lied", compute_lied},
    {"compute-pretended", compute_pretended},
    {"module-globals", module_globals},
    {"module-globals-room", module_globals_room},
    {"no-context-memory", no_context_memory},
    {"many-globals", many_globals},
    {"memory-bursts", memory_bursts},
    {"pages-truncated", pages_truncated},
    {"pages-locked", pages_locked},
    {"pages-noise", pages_noise},
    {"pages-lied", pages_lied},
    {"grant-written", grant_written},
    {"stopped-in-lease", stopped_in_lease},
    {"many-processes", many_processes},
    {"open-capture", open_capture},
    {"changing-block", changing_block},
    {"racing-capture", racing_capture},
    {"other-card", other_card},
    {"second-hello", second_hello},
    {"detached-context", detached_context},
    {"imported-handles", imported_handles},
    {"destroyed-pool", destroyed_pool},
    {"childs-inheritance", childs_inheritance},
    {"destroyed-contexts", destroyed_contexts},
    {"exec-again", exec_again},
    {"after-exec", after_exec},
};

}  // namespace

std::span<const Attack> attacks() { return kAttacks; }

int report_and_hold(const char* name, const Taken& taken, const Options& options, const std::string& note) {
  std::printf("{\"attack\":\"%s\",\"pid\":%d,\"got_bytes\":%llu,\"refused_with\":%d,\"note\":\"%s\"}\n", name,
              getpid(), static_cast<unsigned long long>(taken.bytes), taken.refused_with, note.c_str());
  std::fflush(stdout);
  usleep(static_cast<useconds_t>(options.hold_ms * 1000));
  return 0;
}

int precondition_missing(const char* name, const std::string& why) {
  std::printf("{\"attack\":\"%s\",\"missing\":\"%s\"}\n", name, why.c_str());
  std::fflush(stdout);
  return 3;
}

}  // namespace carve::attacks
