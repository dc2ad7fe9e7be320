#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "preload/process.h"

namespace carve::preload {

namespace {

constexpr std::uint64_t kPatienceNs = 5'000'000'000;         // for an arbiter that does not exist, or refuses
constexpr std::uint64_t kAnswerPatienceNs = 30'000'000'000;  // in all, for one that exists and does not answer
constexpr long kRetryNs = 20'000'000;
constexpr std::uint32_t kMaxDescriptors = 2 * kMaxCards + 1;

/// Restores errno at the end of the scope, because a driver call never changes it.
class KeepErrno {
 public:
  KeepErrno() : kept_(errno) {}
  ~KeepErrno() { errno = kept_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int kept_;
};

struct Directory {
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

bool append(char*& at, const char* end, const char* text) {
  for (; *text != 0; ++text) {
    if (at + 1 >= end) {
      return false;
    }
    *at++ = *text;
  }
  *at = 0;
  return true;
}

/// Copies the descriptors from a received message and returns their number.
std::uint32_t descriptors_of(msghdr& message, int* out) {
  std::uint32_t count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i) {
      int fd = -1;
      __builtin_memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      if (count < kMaxDescriptors) {
        out[count++] = fd;
      } else {
        close(fd);
      }
    }
  }
  return count;
}

/// Maps the two pages of one card; false when this build cannot read them.
bool map_card(Process& state, int grant_fd, int account_fd, std::uint32_t entry, abi::LibraryKind kind) {
  void* grant = mmap(nullptr, abi::kGrantPageBytes, PROT_READ, MAP_SHARED, grant_fd, 0);
  if (grant == MAP_FAILED) {
    return false;
  }
  const int access = kind == abi::LibraryKind::kCuda ? PROT_READ | PROT_WRITE : PROT_READ;
  void* account = mmap(nullptr, abi::kAccountPageBytes, access, MAP_SHARED, account_fd, 0);
  if (account == MAP_FAILED) {
    munmap(grant, abi::kGrantPageBytes);
    return false;
  }
  auto* page = static_cast<const abi::GrantPage*>(grant);
  auto* own = static_cast<abi::AccountPage*>(account);
  if (page->magic != abi::kGrantMagic || own->magic != abi::kAccountMagic || entry >= abi::kAccountEntries) {
    munmap(grant, abi::kGrantPageBytes);
    munmap(account, abi::kAccountPageBytes);
    return false;
  }
  state.cards[state.card_count++] = {page, own, &own->entries[entry], nullptr};
  return true;
}

/// How an attempt to connect ended.
enum class Attempt {
  kConnected,
  kRefused,     // there is no arbiter, or it refuses
  kUnanswered,  // there is one, and it did not answer: busy, stopped, or it ended
};

/// Sends the Hello, receives the Welcome and maps the pages. The connection is not needed afterwards.
Attempt greet(Process& state, int connection, abi::LibraryKind kind) {
  const abi::Hello hello{abi::kHelloMagic, abi::kPageAbiMin, abi::kPageAbi, kind, abi::kLifelines};
  if (send(connection, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
    return Attempt::kUnanswered;
  }
  abi::Welcome welcome{};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  iovec part{&welcome, sizeof welcome};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) {
    return Attempt::kUnanswered;
  }
  int fds[kMaxDescriptors];
  const std::uint32_t count = descriptors_of(message, fds);
  const bool has_lifeline = (welcome.features & abi::kLifelines) != 0;
  bool mapped = got == sizeof welcome && welcome.magic == abi::kHelloMagic &&
                welcome.status == abi::WelcomeStatus::kOk && welcome.card_count > 0 &&
                count == 2U * welcome.card_count + (has_lifeline ? 1 : 0);
  for (std::uint32_t i = 0; mapped && i + 1 < count && state.card_count < kMaxCards; i += 2) {
    mapped = map_card(state, fds[i], fds[i + 1], welcome.entry, kind);
    if (mapped && kind == abi::LibraryKind::kCuda) {
      abi::AccountEntry& own = *state.cards[state.card_count - 1].entry;
      own.host_pid.store_relaxed(static_cast<std::uint64_t>(welcome.host_pid));
      own.instance.store_release(welcome.instance);
    }
    if (mapped && i == 0 && has_lifeline) {
      void* lifeline = mmap(nullptr, abi::kLifelineBytes, PROT_NONE, MAP_SHARED, fds[count - 1], 0);
      mapped = lifeline != MAP_FAILED;
      state.cards[state.card_count - 1].lifeline = mapped ? lifeline : nullptr;
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    close(fds[i]);
  }
  return mapped ? Attempt::kConnected : Attempt::kRefused;
}

Attempt connect_to(Process& state, const char* folder, abi::LibraryKind kind, std::uint64_t patience_ns) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  char* at = address.sun_path;
  const char* end = address.sun_path + sizeof address.sun_path;
  if (!append(at, end, abi::kSlicesFolder) || !append(at, end, "/") || !append(at, end, folder) ||
      !append(at, end, "/s")) {
    return Attempt::kRefused;
  }
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) {
    return Attempt::kRefused;
  }
  // Limits the time of connect (a full backlog), send and receive (a stopped arbiter).
  const timeval patience{static_cast<time_t>(patience_ns / 1'000'000'000) + 1, 0};
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  Attempt result = Attempt::kRefused;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    result = greet(state, connection, kind);
  } else if (errno == EAGAIN) {
    result = Attempt::kUnanswered;
  }
  close(connection);
  return result;
}

void unmap(Process& state) {
  for (std::uint32_t i = 0; i < state.card_count; ++i) {
    munmap(const_cast<abi::GrantPage*>(state.cards[i].grant), abi::kGrantPageBytes);
    munmap(state.cards[i].account, abi::kAccountPageBytes);
    if (state.cards[i].lifeline != nullptr) {
      munmap(state.cards[i].lifeline, abi::kLifelineBytes);
    }
  }
  state.card_count = 0;
}

/// Connects to every slice of this container, maps its pages (see abi/hello.h) and fills `cards` in order. Leaves no
/// descriptor open and changes nothing else in the process. Stops at the first slice that cannot be reached. A
/// container without slices is kRefused.
Attempt map_slices(Process& state, abi::LibraryKind kind, std::uint64_t patience_ns) {
  const int folder = open(abi::kSlicesFolder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    return Attempt::kRefused;
  }
  // Not with opendir: it would call the allocator, which the program may have replaced.
  alignas(8) char entries[2048];
  Attempt last = Attempt::kConnected;
  std::uint32_t slices = 0;
  for (;;) {
    const long length = syscall(SYS_getdents64, folder, entries, sizeof entries);
    if (length <= 0) {
      break;
    }
    for (long at = 0; at < length;) {
      const auto* entry = reinterpret_cast<const Directory*>(entries + at);
      at += entry->length;
      if (entry->name[0] == '.') {
        continue;
      }
      ++slices;
      if (last == Attempt::kConnected) {
        last = connect_to(state, entry->name, kind, patience_ns);
      }
    }
  }
  close(folder);
  if (last == Attempt::kConnected && slices != 0) {
    return last;
  }
  unmap(state);
  return slices == 0 ? Attempt::kRefused : last;
}

}  // namespace

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

void wipe_on_fork(void* state, std::size_t size) {
  const KeepErrno keep;
  constexpr int kWipeOnFork = 18;  // MADV_WIPEONFORK, Linux 4.14; the oldest headers lack it
  madvise(state, size, kWipeOnFork);
}

bool unlimited(const Process& state) {
  for (std::uint32_t i = 0; i < state.card_count; ++i) {
    const abi::GrantPage& grant = *state.cards[i].grant;
    if (grant.memory_limit.load_relaxed() != kUnlimitedBytes || grant.compute_limit.load_relaxed() < 100 ||
        grant.share_class != abi::ShareClass::kBurst) {
      return false;
    }
  }
  return true;
}

bool connect_to_slices(Process& state, abi::LibraryKind kind) {
  const KeepErrno keep;
  const std::uint64_t start = monotonic_ns();
  const bool patient = state.failed_at_ns == 0;
  std::uint64_t last_sign = start;  // of an arbiter
  for (;;) {
    const std::uint64_t waited = monotonic_ns() - start;
    const std::uint64_t left = waited < kAnswerPatienceNs ? kAnswerPatienceNs - waited : 0;
    const Attempt result = map_slices(state, kind, patient ? left : 0);
    if (result == Attempt::kConnected) {
      return true;
    }
    const std::uint64_t now = monotonic_ns();
    if (result == Attempt::kUnanswered) {
      last_sign = now;
    }
    if (!patient || now - last_sign >= kPatienceNs || now - start >= kAnswerPatienceNs) {
      state.failed_at_ns = now;
      return false;
    }
    const timespec pause{0, kRetryNs};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace carve::preload
