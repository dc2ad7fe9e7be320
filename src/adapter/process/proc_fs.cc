#include "adapter/process/proc_fs.h"

#include <sys/stat.h>

#include <csignal>

#include "abi/hello.h"
#include "adapter/process/text_file.h"

namespace carve {

std::string ProcFs::command(std::int32_t pid) const { return command_of(pid); }

std::string ProcFs::slice_seen_by(std::int32_t pid) const {
  const std::string proc = "/proc/" + std::to_string(pid);
  struct stat theirs = {};
  struct stat ours = {};
  if (::stat((proc + "/ns/mnt").c_str(), &theirs) != 0 || ::stat("/proc/self/ns/mnt", &ours) != 0) return {};
  if (theirs.st_ino == ours.st_ino) return {};
  const auto names = list_folder(proc + "/root" + abi::kSlicesFolder);
  return names && names->size() == 1 ? names->front() : std::string();
}

void ProcFs::kill(std::int32_t pid) {
  if (pid > 1) ::kill(pid, SIGKILL);
}

}  // namespace carve
