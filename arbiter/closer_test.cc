#include "arbiter/closer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <semaphore>
#include <system_error>
#include <thread>
#include <utility>

namespace carve::arbiter {
namespace {

std::pair<Fd, Fd> pipe_ends() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

/// A connection with unread data: the close of `sleeps` sleeps for 60 s, or until `peer` is closed.
struct Lingering {
  Fd peer;
  Fd sleeps;
};

Lingering lingering() {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const named = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), named, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), named, &size), 0);
  Lingering made;
  made.sleeps = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(made.sleeps.get(), named, size), 0);
  made.peer = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::array<char, 65536> bytes = {};
  while (::send(made.sleeps.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  const linger wait = {1, 60};
  EXPECT_EQ(::setsockopt(made.sleeps.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
  return made;
}

TEST(Closer, ClosesItsDescriptorsAndItsThreadIsJoined) {
  Closers closers;
  auto [in, out] = pipe_ends();
  {
    Closer closer = closers.open();
    closer.take(std::move(out));
    char byte = 0;
    EXPECT_EQ(::read(in.get(), &byte, 1), 0) << "the end of the pipe";
    closers.reap();
    EXPECT_EQ(closers.size(), 1U) << "the slice exists";
  }
  while (closers.size() != 0) {
    closers.reap();
    std::this_thread::yield();
  }
}

TEST(Closer, ASleepInCloseDelaysNeitherAnotherSliceNorTheEnd) {
  auto made = lingering();
  auto [in, out] = pipe_ends();
  {
    Closers closers;
    Closer sleeping = closers.open();
    sleeping.take(std::move(made.sleeps));
    for (std::size_t i = 0; i <= Closer::kMost; ++i) sleeping.take(Fd(::dup(in.get())));
    EXPECT_TRUE(sleeping.full());
    Closer other = closers.open();
    other.take(std::move(out));
    char byte = 0;
    EXPECT_EQ(::read(in.get(), &byte, 1), 0);
    EXPECT_FALSE(other.full());
    closers.reap();
    EXPECT_EQ(closers.size(), 2U);
  }
  char byte = 0;
  EXPECT_EQ(::recv(made.peer.get(), &byte, 1, 0), 1) << "still open: the close sleeps";
}

// The kernel may delay the start of a thread for seconds: each start and each end takes the cgroup lock.
TEST(Closer, TheCallerDoesNotWaitForTheStartOfAThread) {
  std::binary_semaphore begin{0};
  Closers closers([&](std::function<void()> run) {
    begin.acquire();
    return Thread("test", std::move(run));
  });
  auto [in, out] = pipe_ends();
  {
    Closer closer = closers.open();
    closer.take(Fd(::dup(in.get())));
    closer.take(std::move(out));
    EXPECT_FALSE(closer.full());
    closers.reap();
  }
  closers.reap();
  EXPECT_EQ(closers.size(), 1U) << "its descriptors are not closed yet";
  begin.release();
  char byte = 0;
  EXPECT_EQ(::read(in.get(), &byte, 1), 0) << "the end of the pipe";
  while (closers.size() != 0) {
    closers.reap();
    std::this_thread::yield();
  }
}

TEST(Closer, TriesAgainWhenTheSystemHasNoThreadLeft) {
  std::atomic<int> tries{0};
  Closers closers([&](std::function<void()> run) {
    if (++tries < 3) throw std::system_error(EAGAIN, std::generic_category());
    return Thread("test", std::move(run));
  });
  auto [in, out] = pipe_ends();
  Closer closer = closers.open();
  closer.take(std::move(out));
  char byte = 0;
  EXPECT_EQ(::read(in.get(), &byte, 1), 0);
  EXPECT_EQ(tries, 3);
}

}  // namespace
}  // namespace carve::arbiter
