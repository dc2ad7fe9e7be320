#include "adapter/kubelet/unix_listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace carve::kubelet {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class UnixListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/carve-listener-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  /// Creates a bound socket that does not listen yet. The file remains when the descriptor is closed.
  Fd bound(const std::string& name) const {
    Fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = folder + "/" + name;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path;
    return made;
  }
  /// Waits until a thread waits for the lock on the folder, according to /proc/locks.
  [[nodiscard]] bool lock_is_waited_for() const {
    struct stat status = {};
    EXPECT_EQ(::stat(folder.c_str(), &status), 0);
    const std::string inode = ":" + std::to_string(status.st_ino) + " ";
    const auto limit = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < limit) {
      std::ifstream locks("/proc/locks");
      for (std::string line; std::getline(locks, line);) {
        if (line.find("-> FLOCK") != std::string::npos && line.find(inode) != std::string::npos) return true;
      }
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& one : fs::directory_iterator(folder)) all.push_back(one.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  std::string folder;
};

TEST_F(UnixListenerTest, AnswersUnderItsNameAndRemovesTheFile) {
  {
    const auto made = UnixListener::open(folder + "/a.sock");
    ASSERT_TRUE(made) << made.error().what;
    EXPECT_EQ(names(), std::vector<std::string>{"a.sock"});
    EXPECT_EQ(fs::status(folder + "/a.sock").permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_TRUE(connect_unix(folder + "/a.sock"));
    EXPECT_TRUE(made->accept());
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(UnixListenerTest, RemovesOnlyTheHiddenSocketsOfKilledProcesses) {
  for (const auto* left : {".carve-0badcafe", ".carve-0badcaff", "another.sock", ".another"}) bound(left);
  const auto answers = bound(".carve-0badbeef");
  ASSERT_EQ(::listen(answers.get(), 8), 0);
  const auto busy = bound(".carve-0badbee0");
  ASSERT_EQ(::listen(busy.get(), 0), 0);
  std::vector<Fd> queue;
  while (auto reached = connect_unix(folder + "/.carve-0badbee0")) {
    queue.push_back(std::move(*reached));
    ASSERT_LT(queue.size(), 100U) << "the backlog is never full";
  }
  std::ofstream(folder + "/.carve-notes") << "a file of another program";
  fs::create_directory(folder + "/.carve-folder");
  ASSERT_TRUE(UnixListener::open(folder + "/a.sock"));
  EXPECT_EQ(names(), (std::vector<std::string>{".another", ".carve-0badbee0", ".carve-0badbeef", ".carve-folder",
                                               ".carve-notes", "another.sock"}));
}

// Between bind() and listen() a socket refuses connections, like a dead one.
TEST_F(UnixListenerTest, WaitsForASocketThatDoesNotListenYet) {
  std::atomic<bool> opened = false;
  std::jthread opens;  // declared before the lock, which is released first when the test ends early
  Fd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const auto other = bound(".carve-0badbeef");
  opens = std::jthread([&] { opened = UnixListener::open(folder + "/a.sock").has_value(); });
  ASSERT_TRUE(lock_is_waited_for());
  ASSERT_TRUE(fs::exists(folder + "/.carve-0badbeef"));
  ASSERT_EQ(::listen(other.get(), 8), 0);
  fs::rename(folder + "/.carve-0badbeef", folder + "/other.sock");
  lock.reset();
  opens.join();
  EXPECT_TRUE(opened);
  EXPECT_TRUE(connect_unix(folder + "/other.sock"));
}

TEST_F(UnixListenerTest, ConcurrentOpensInOneFolderAllSucceed) {
  std::atomic<int> lost = 0;
  {
    std::vector<std::jthread> threads;
    for (int socket = 0; socket < 4; ++socket) {
      threads.emplace_back([&, path = folder + "/" + std::to_string(socket) + ".sock"] {
        for (int i = 0; i < 200; ++i) lost += UnixListener::open(path) ? 0 : 1;
      });
    }
  }
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(names().empty());
}

TEST_F(UnixListenerTest, ReportsAMissingFolderAndATooLongName) {
  const auto nowhere = UnixListener::open(folder + "/none/a.sock");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::kNotFound);
  const auto too_long = UnixListener::open(folder + "/" + std::string(120, 'a'));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace carve::kubelet
