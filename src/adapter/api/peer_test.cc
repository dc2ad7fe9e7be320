#include "adapter/api/peer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "adapter/api/channel.h"
#include "adapter/process/spawn.h"
#include "base/testing/temp_folder.h"

namespace carve::api {
namespace {

TEST(Peer, AProcessIsGoneWhenItHasEnded) {
  const auto child = process::spawn({.program = "/bin/sleep", .args = {"100"}, .keep = {}, .log_file = {}});
  ASSERT_TRUE(child);
  const auto gone = hold_of(child->pid, ::geteuid());
  ASSERT_TRUE(gone) << gone.error().what;
  EXPECT_FALSE((*gone)());
  process::stop_child(*child, std::chrono::milliseconds(0));
  EXPECT_TRUE((*gone)());
  EXPECT_TRUE((*hold_of(child->pid, ::geteuid()))()) << "no process has the PID";
}

TEST(Peer, APidOfAnotherUserCountsAsGone) {
  EXPECT_FALSE((*hold_of(::getpid(), ::geteuid()))());
  EXPECT_TRUE((*hold_of(::getpid(), ::geteuid() + 1))());
  EXPECT_TRUE((*hold_of(0, ::geteuid()))());
}

/// The process that connected ends; its child inherits the connection.
TEST(Peer, ACallerIsGoneEvenIfItsChildKeepsTheConnection) {
  const TempFolder folder;
  const std::string path = folder.path() + "/s";
  const auto listener = listen_at(path);
  ASSERT_TRUE(listener) << listener.error().what;
  int done[2];
  ASSERT_EQ(::pipe(done), 0);
  const pid_t first = ::fork();
  if (first == 0) {
    ::close(done[1]);
    const auto connection = connect_to(path);
    char byte = connection ? 'y' : 'n';
    static_cast<void>(!::read(done[0], &byte, 1));  // the parent has checked
    if (::fork() != 0) ::_exit(0);
    if (::send(connection->get(), "x", 1, MSG_NOSIGNAL) != 1) ::_exit(1);
    static_cast<void>(!::read(done[0], &byte, 1));  // the end of the test
    ::_exit(0);
  }
  const auto process = process::open_process(first);
  ASSERT_TRUE(process);
  Fd fd;
  for (int i = 0; i < 500 && !fd; ++i) {
    fd.reset(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) ::usleep(10'000);
  }
  const auto caller = peer_of(fd.get());
  ASSERT_TRUE(caller) << caller.error().what;
  EXPECT_EQ(caller->pid, first);
  EXPECT_FALSE(caller->gone());
  ASSERT_EQ(::write(done[1], "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::recv(fd.get(), &byte, 1, 0), 1) << "the child sends on the connection";
  EXPECT_TRUE(process::wait_gone(*process, std::chrono::seconds(5)));
  EXPECT_TRUE(caller->gone());
  EXPECT_TRUE(peer_of(fd.get())->gone()) << "called after the end of the process";
  ::close(done[1]);
}

}  // namespace
}  // namespace carve::api
