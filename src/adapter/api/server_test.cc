#include "adapter/api/server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <vector>

#include "adapter/api/channel.h"
#include "adapter/api/client.h"
#include "adapter/api/messages.h"
#include "adapter/process/text_file.h"
#include "base/clock.h"
#include "base/testing/temp_folder.h"

namespace carve::api {
namespace {

class Echo final : public AgentApi {
 public:
  Result<Grant> allocate(const Caller& caller, const AllocateRequest& request,
                         const std::function<bool()>& gone) override {
    if (request.wait) {
      while (!gone()) ::usleep(1000);
      went_away = true;
      return fail(Code::kCancelled, "gone");
    }
    Grant grant;
    grant.slice = "pid-" + std::to_string(caller.pid) + "-uid-" + std::to_string(caller.uid);
    return grant;
  }
  Result<void> join(const Caller&, const std::string& slice) override {
    return fail(Code::kNotFound, "no slice " + slice);
  }
  Result<void> release(const Caller&, const std::string&, bool) override { return {}; }
  Result<AgentView> view(const Caller&) override { return AgentView{}; }
  std::atomic<bool> went_away{false};
};

class ApiServerTest : public testing::Test {
 protected:
  ApiServerTest() { start({}); }
  void start(const ServerLimits& limits) {
    thread_ = std::jthread();
    server_.reset();
    auto opened = Server::open(path_, echo_, log_, limits);
    EXPECT_TRUE(opened) << opened.error().what;
    server_ = std::move(*opened);
    thread_ = std::jthread([this](const std::stop_token& stop) { server_->run(stop); });
  }
  [[nodiscard]] bool is_refused() const {
    const auto fd = connect_to(path_);
    const auto reply = fd ? receive_frame(fd->get(), kMaxReplyBytes, std::chrono::seconds(5)) : std::string();
    return reply && reply->find("too many concurrent") != std::string::npos;
  }
  /// The first answer on a connection that requests the view: a refusal, or the view if the connection was accepted.
  static std::string first_answer(const Result<Fd>& fd) {
    EXPECT_TRUE(fd);
    ApiRequest message;
    message.op = Op::kView;
    static_cast<void>(send_frame(fd->get(), encode_request(message)));  // a refused connection may already be closed
    return receive_frame(fd->get(), kMaxReplyBytes, std::chrono::seconds(5)).value_or("");
  }
  static bool is_accepted(const Result<Fd>& fd) {
    const auto answer = first_answer(fd);
    return !answer.empty() && answer.find("too many concurrent") == std::string::npos;
  }
  std::atomic<int> lines_{0};
  Log log_{[this](std::string_view) { ++lines_; }};
  Echo echo_;
  const TempFolder folder_;
  const std::string path_ = folder_.path() + "/agent.sock";
  std::unique_ptr<Server> server_;
  std::jthread thread_;
};

TEST_F(ApiServerTest, PassesThePeersIdentityToTheApplication) {
  Client client(path_);
  const auto grant = client.allocate({}, {}, {});
  ASSERT_TRUE(grant) << grant.error().what;
  EXPECT_EQ(grant->slice, "pid-" + std::to_string(::getpid()) + "-uid-" + std::to_string(::getuid()));
  EXPECT_EQ(client.join({}, "x").error().what, "no slice x");
  EXPECT_TRUE(client.view({}));
}

TEST_F(ApiServerTest, RefusesASecondServerAndReplacesAStaleSocket) {
  EXPECT_EQ(Server::open(path_, echo_, log_).error().code, Code::kAlreadyExists);
  const std::string stale = path_ + ".stale";
  {
    auto fd = listen_at(stale);
    ASSERT_TRUE(fd);
  }
  struct stat info = {};
  ASSERT_EQ(::stat(stale.c_str(), &info), 0);
  EXPECT_NE(connect_to(stale).error().what.find("stale"), std::string::npos);
  EXPECT_TRUE(Server::open(stale, echo_, log_));
}

/// A stopped agent, and more commands than its backlog takes.
TEST(ApiClientTest, TheClientGivesUpOnAnAgentThatDoesNotAccept) {
  const TempFolder folder;
  const std::string path = folder.path() + "/agent.sock";
  const auto stopped = listen_at(path);
  ASSERT_TRUE(stopped);
  ASSERT_EQ(::listen(stopped->get(), 1), 0);
  std::vector<Fd> queue;
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    auto fd = connect_to(path, std::chrono::milliseconds(50));
    if (!fd) {
      EXPECT_EQ(fd.error().code, Code::kDeadlineExceeded) << fd.error().what;
      break;
    }
    queue.push_back(std::move(*fd));
    ASSERT_LT(queue.size(), 10U);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(listen_at(path).error().code, Code::kAlreadyExists) << "the socket of a living agent is not replaced";
  const auto asked = Client(path).view({});
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, Code::kUnavailable);
  EXPECT_NE(asked.error().what.find("does not accept connections"), std::string::npos) << asked.error().what;
}

/// The server refuses the client before it has read anything; the client may then send to a closed connection.
TEST_F(ApiServerTest, AClientBeyondTheLimitReceivesARefusal) {
  start({.connections = 1, .kept_for_root = 0});
  const auto accepted = connect_to(path_);
  ASSERT_TRUE(is_accepted(accepted));
  for (int i = 0; i < 300; ++i) {
    const auto refused = Client(path_).view({});
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code, Code::kResourceExhausted) << i << ": " << refused.error().what;
    ASSERT_NE(refused.error().what.find("too many concurrent connections"), std::string::npos) << refused.error().what;
  }
}

/// After an agent was killed, its socket exists and no process listens until the next agent starts. After an agent
/// ended in order, only the lock file of its supervisor exists.
TEST_F(ApiServerTest, AClientWithPatienceWaitsForTheNextAgent) {
  const auto restarted = [&](auto prepare) {
    thread_ = std::jthread();
    server_.reset();
    prepare();
    EXPECT_FALSE(Client(path_).view({})) << "a client without patience";
    std::jthread next([this] {
      ::usleep(300'000);  // real time is the subject
      start({});
    });
    const auto view = Client(path_, std::chrono::seconds(20)).view({});
    EXPECT_TRUE(view) << view.error().what;
    next.join();
  };
  restarted([&] { EXPECT_TRUE(listen_at(path_)); });  // closed immediately: a stale socket
  restarted([&] { EXPECT_TRUE(process::replace_file(folder_.path() + "/up.lock", "", 0600)); });
  ::unlink((folder_.path() + "/up.lock").c_str());
  thread_ = std::jthread();
  server_.reset();
  const auto begin = std::chrono::steady_clock::now();
  const auto none = Client(path_, std::chrono::seconds(20)).view({});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().what.find("start it with `carve up`"), std::string::npos) << none.error().what;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5))
      << "nothing shows that an agent is expected";
}

/// The agent is killed after it has read a request and before it has answered. The next agent gives back the slice of a
/// command that did not learn of it, so that request is repeated. A slice that outlives its command would exist twice.
TEST_F(ApiServerTest, APatientClientRepeatsOnlyARequestThatTheNextAgentUndoes) {
  for (const bool keep : {false, true}) {
    thread_ = std::jthread();
    server_.reset();
    auto dying = listen_at(path_);
    ASSERT_TRUE(dying);
    std::jthread next([&] {
      {
        pollfd waiting = {dying->get(), POLLIN, 0};
        EXPECT_EQ(::poll(&waiting, 1, 5'000), 1);
        const Fd connection(::accept4(dying->get(), nullptr, nullptr, SOCK_CLOEXEC));
        EXPECT_TRUE(receive_frame(connection.get(), kMaxReplyBytes, std::chrono::seconds(5)));
        *dying = Fd();
      }
      start({});
    });
    AllocateRequest request;
    request.keep = keep;
    const auto grant = Client(path_, std::chrono::seconds(20)).allocate({}, request, {});
    next.join();
    EXPECT_EQ(grant.has_value(), !keep) << (grant ? grant->slice : grant.error().what);
  }
}

TEST_F(ApiServerTest, InvalidInputAffectsOnlyItsOwnConnection) {
  const auto fd = connect_to(path_);
  ASSERT_TRUE(fd);
  const std::string noise(100, '\xff');
  ASSERT_GT(::send(fd->get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  const auto reply = receive_frame(fd->get(), kMaxReplyBytes, std::chrono::seconds(5));
  ASSERT_TRUE(reply);
  EXPECT_NE(reply->find("at most 65536"), std::string::npos);
  const auto garbage = connect_to(path_);
  ASSERT_TRUE(garbage);
  ASSERT_TRUE(send_frame(garbage->get(), "not json"));
  EXPECT_NE(receive_frame(garbage->get(), kMaxReplyBytes, std::chrono::seconds(5))->find("not JSON"),
            std::string::npos);
  ASSERT_TRUE(send_frame(garbage->get(), R"({"v":1,"op":"view"})"));
  EXPECT_TRUE(receive_frame(garbage->get(), kMaxReplyBytes, std::chrono::seconds(5)));
}

TEST_F(ApiServerTest, LogsRepeatedRefusalsOnce) {
  std::vector<Result<Fd>> all;
  for (int i = 0; i < ServerLimits{}.connections; ++i) all.push_back(connect_to(path_));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(is_refused());
  EXPECT_EQ(lines_, 1);
}

TEST_F(ApiServerTest, ARequestEndsWhenItsClientDisconnects) {
  {
    auto fd = connect_to(path_);
    ASSERT_TRUE(fd);
    ApiRequest message;
    message.op = Op::kAllocate;
    message.allocate.wait = std::chrono::hours(1);
    ASSERT_TRUE(send_frame(fd->get(), encode_request(message)));
  }
  for (int i = 0; i < 5000 && !echo_.went_away; ++i) ::usleep(1000);
  EXPECT_TRUE(echo_.went_away);
}

TEST_F(ApiServerTest, ClosesIdleConnections) {
  start({.idle = std::chrono::milliseconds(400)});
  const auto fd = connect_to(path_);
  ASSERT_TRUE(fd);
  const auto end = receive_frame(fd->get(), kMaxReplyBytes, std::chrono::seconds(5));
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, Code::kUnavailable) << end.error().what;  // closed
  // A request that is being answered has no time limit.
  const auto waits = connect_to(path_);
  ApiRequest message;
  message.op = Op::kAllocate;
  message.allocate.wait = std::chrono::hours(1);
  ASSERT_TRUE(send_frame(waits->get(), encode_request(message)));
  // Real time is the subject: more than twice the limit for an idle connection.
  EXPECT_EQ(receive_frame(waits->get(), kMaxReplyBytes, std::chrono::seconds(1)).error().code,
            Code::kDeadlineExceeded);
  EXPECT_FALSE(echo_.went_away);
}

TEST_F(ApiServerTest, KeepsConnectionsFreeForRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: needs root to connect as another user";
  ASSERT_EQ(::chmod(path_.substr(0, path_.rfind('/')).c_str(), 0711), 0);
  start({.connections = 4, .kept_for_root = 1, .per_user = 2});
  const auto as = [&](uid_t user) {  // this thread only
    EXPECT_EQ(::syscall(SYS_setresuid, -1, user, -1), 0);
    auto fd = connect_to(path_);
    EXPECT_EQ(::syscall(SYS_setresuid, -1, 0, -1), 0);
    return fd;
  };
  const auto first = as(65533);
  const auto second = as(65533);
  EXPECT_TRUE(is_accepted(second));
  EXPECT_NE(first_answer(as(65533)).find("too many concurrent"), std::string::npos) << "the limit of one user";
  const auto other = as(65534);
  EXPECT_TRUE(is_accepted(other));
  EXPECT_NE(first_answer(as(65532)).find("too many concurrent"), std::string::npos) << "the limit of all users";
  EXPECT_TRUE(Client(path_).view({})) << "root is accepted";
}

/// The connection waits in the backlog until a descriptor is free; the server does not busy-loop meanwhile.
TEST_F(ApiServerTest, WaitsForAFreeDescriptorWithoutSpinning) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto connected = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const auto used = [] {
    timespec time = {};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto begin = used();
  ::usleep(500'000);  // the measurement itself
  const auto spent = used() - begin;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(connected, 0);
  EXPECT_LT(spent, std::chrono::milliseconds(200));
  ApiRequest message;
  message.op = Op::kView;
  ASSERT_TRUE(send_frame(fd.get(), encode_request(message)));
  EXPECT_TRUE(receive_frame(fd.get(), kMaxReplyBytes, std::chrono::seconds(5)));
}

/// A connection that has the last descriptor leaves none for the pidfd of its process.
TEST_F(ApiServerTest, AClientThatTakesTheLastDescriptorReceivesAnError) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int last = ::dup(fd.get());  // the lowest free number is the server's next one, and its last
  ASSERT_EQ(::close(last), 0);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit one_more = {static_cast<rlim_t>(last) + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const auto connected = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const auto reply = receive_frame(fd.get(), kMaxReplyBytes, std::chrono::seconds(5));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(connected, 0);
  ASSERT_TRUE(reply) << reply.error().what;
  EXPECT_NE(reply->find("no free file descriptors"), std::string::npos) << *reply;
}

}  // namespace
}  // namespace carve::api
