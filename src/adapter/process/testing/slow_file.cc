#include "adapter/process/testing/slow_file.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace carve::process {
namespace {

constexpr std::uint64_t kRoot = 1;
constexpr std::uint64_t kFile = 2;
constexpr std::uint64_t kLong = 1'000;  // seconds for which the kernel keeps an answer

template <typename Out>
void answer(int device, const fuse_in_header& request, const Out& out) {
  const fuse_out_header header{sizeof(fuse_out_header) + sizeof out, 0, request.unique};
  std::vector<char> bytes(header.len);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &out, sizeof out);
  static_cast<void>(!write(device, bytes.data(), bytes.size()));
}

void answer_error(int device, const fuse_in_header& request, int error) {
  const fuse_out_header header{sizeof(fuse_out_header), error, request.unique};
  static_cast<void>(!write(device, &header, sizeof header));
}

/// Serves the file system until it is unmounted.
///   source  linux/fuse.h
void serve(int device, int closing) {
  std::vector<char> bytes(1 << 20);
  for (;;) {
    const ssize_t got = read(device, bytes.data(), bytes.size());
    if (got < 0 && errno == ENODEV) return;
    if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) continue;
    fuse_in_header request{};
    std::memcpy(&request, bytes.data(), sizeof request);
    switch (request.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_write = 4096;
        answer(device, request, out);
        break;
      }
      case FUSE_LOOKUP: {
        fuse_entry_out out{};
        out.nodeid = out.attr.ino = kFile;
        out.attr_valid = out.entry_valid = kLong;
        out.attr.mode = S_IFREG | 0444;
        out.attr.nlink = 1;
        answer(device, request, out);
        break;
      }
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr_valid = kLong;
        out.attr.ino = request.nodeid;
        out.attr.mode = request.nodeid == kRoot ? S_IFDIR | 0755 : S_IFREG | 0444;
        out.attr.nlink = 1;
        answer(device, request, out);
        break;
      }
      case FUSE_OPEN:
        answer(device, request, fuse_open_out{});
        break;
      case FUSE_FLUSH:  // gets no answer
        static_cast<void>(!write(closing, "c", 1));
        break;
      case FUSE_FORGET:  // has no answer
        break;
      default:
        answer_error(device, request, -ENOSYS);
    }
  }
}

}  // namespace

SlowFile::SlowFile(const std::string& folder) : folder_(folder) {
  int closing[2];
  const Fd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device || mkdir(folder.c_str(), 0755) != 0 || pipe2(closing, O_CLOEXEC) != 0) return;
  closing_ = Fd(closing[0]);
  const Fd closing_end(closing[1]);
  const std::string options = "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
  if (mount("slow", folder.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) return;
  std::fflush(nullptr);
  server_ = fork();
  if (server_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  serve(device.get(), closing_end.get());
  _exit(0);
}

SlowFile::~SlowFile() {
  if (server_ > 0) {
    kill(server_, SIGKILL);  // the kernel ends what waits for it
    waitpid(server_, nullptr, 0);
    umount2(folder_.c_str(), MNT_DETACH);
  }
  rmdir(folder_.c_str());
}

bool SlowFile::wait_for_close() {
  char byte = 0;
  return read(closing_.get(), &byte, 1) == 1;
}

}  // namespace carve::process
