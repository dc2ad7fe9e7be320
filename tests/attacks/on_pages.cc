// Attacks on the pages that a tenant has, and on its own process.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "abi/hello.h"
#include "abi/page.h"
#include "tests/attacks/attack.h"

namespace carve::attacks {
namespace {

Find usual_driver() { return in_handle(dlopen("libcuda.so.1", RTLD_NOW)); }

// Allocates memory while `spoil` is called repeatedly on every account page of this process.
template <class Spoil>
int while_spoiling(const char* name, const Options& o, Spoil spoil) {
  const Find find = usual_driver();
  take_memory(find, o.step, o.step);  // the library is initialised now, and its pages are mapped
  const auto pages = mapped_accounts();
  if (pages.empty()) return precondition_missing(name, "no account page is mapped in this process");
  std::atomic<bool> stop = false;
  std::thread spoiler([&] {
    while (!stop) {
      for (abi::AccountPage* page : pages) spoil(*page);
    }
  });
  const Taken taken = take_memory(find, o.bytes, o.step);
  report_and_hold(name, taken, o);
  stop = true;
  spoiler.join();
  return 0;
}

}  // namespace

std::vector<int> ask_for_pages() {
  std::vector<int> fds;
  DIR* listing = opendir(abi::kSlicesFolder);
  while (const dirent* entry = listing ? readdir(listing) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%.60s/s", abi::kSlicesFolder, entry->d_name);
    const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const abi::Hello hello{abi::kHelloMagic, abi::kPageAbiMin, abi::kPageAbi, abi::LibraryKind::kCuda, 0};
    if (connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        send(s, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello) {
      abi::Welcome welcome = {};
      iovec data{&welcome, sizeof welcome};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 2 * abi::kMaxCardsPerSlice)];
      msghdr message = {};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      if (recvmsg(s, &message, 0) > 0) {
        for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
          const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
          const std::size_t before = fds.size();
          fds.resize(before + count);
          std::memcpy(fds.data() + before, CMSG_DATA(c), count * sizeof(int));
        }
      }
    }
    close(s);
  }
  if (listing) closedir(listing);
  return fds;
}

std::vector<abi::AccountPage*> mapped_accounts() {
  std::vector<abi::AccountPage*> pages;
  FILE* maps = std::fopen("/proc/self/maps", "re");
  char line[512];
  while (maps && std::fgets(line, sizeof line, maps)) {
    unsigned long from = 0;
    unsigned long to = 0;
    if (std::sscanf(line, "%lx-%lx rw-s", &from, &to) != 2 || to - from < sizeof(abi::AccountPage)) continue;
    auto* page = reinterpret_cast<abi::AccountPage*>(from);
    if (std::strstr(line, " rw-s ") && page->magic == abi::kAccountMagic) pages.push_back(page);
  }
  if (maps) std::fclose(maps);
  return pages;
}

int pages_truncated(const Options& o) {
  take_memory(usual_driver(), o.step, o.step);
  int succeeded = 0;
  for (const int fd : ask_for_pages()) {
    succeeded += ftruncate(fd, 0) == 0;
    succeeded += ftruncate(fd, 1 << 30) == 0;
    // A memfd that is not sealed against writes allows hole punching, which zeroes the page while the arbiter uses it.
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(abi::AccountPage));
  }
  const Taken taken = take_memory(usual_driver(), o.bytes, o.step);
  return report_and_hold("pages-truncated", taken, o, "resized " + std::to_string(succeeded));
}

int pages_locked(const Options& o) {
  for (const int fd : ask_for_pages()) {
    flock lock = {};
    lock.l_type = F_WRLCK;
    fcntl(fd, F_OFD_SETLK, &lock);
    fcntl(fd, F_SETLEASE, F_WRLCK);
  }
  return report_and_hold("pages-locked", take_memory(usual_driver(), o.bytes, o.step), o);
}

int pages_noise(const Options& o) {
  std::mt19937_64 random(42);
  return while_spoiling("pages-noise", o, [random](abi::AccountPage& page) mutable {
    auto* words = reinterpret_cast<volatile std::uint64_t*>(&page);
    for (int i = 0; i < 512; ++i) words[random() % (sizeof page / 8)] = random();
  });
}

int pages_lied(const Options& o) {
  return while_spoiling("pages-lied", o, [](abi::AccountPage& page) {
    for (auto& entry : page.entries) __atomic_store_n(&entry.used_bytes.raw, 0, __ATOMIC_SEQ_CST);
  });
}

int grant_written(const Options& o) {
  int written = 0;
  const std::vector<int> fds = ask_for_pages();
  for (std::size_t i = 0; i < fds.size(); i += 2) {
    const std::string path = "/proc/self/fd/" + std::to_string(fds[i]);
    const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
    const std::uint64_t unlimited = ~0ULL;
    if (again >= 0 && pwrite(again, &unlimited, 8, offsetof(abi::GrantPage, memory_limit)) == 8) ++written;
    if (pwrite(fds[i], &unlimited, 8, offsetof(abi::GrantPage, memory_limit)) == 8) ++written;
  }
  const Taken taken = take_memory(usual_driver(), o.bytes, o.step);
  return report_and_hold("grant-written", taken, o, "written " + std::to_string(written));
}

int stopped_in_lease(const Options& o) {
  const int status = launch_kernels(usual_driver(), 64);
  Taken taken;
  taken.refused_with = status;
  std::printf("{\"attack\":\"stopped-in-lease\",\"pid\":%d,\"got_bytes\":0,\"refused_with\":%d}\n", getpid(), status);
  std::fflush(stdout);
  raise(SIGSTOP);
  usleep(static_cast<useconds_t>(o.hold_ms * 1000));
  return 0;
}

}  // namespace carve::attacks
