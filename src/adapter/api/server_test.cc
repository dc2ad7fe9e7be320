#include "adapter/api/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "adapter/api/channel.h"
#include "adapter/api/client.h"
#include "adapter/api/messages.h"
#include "base/clock.h"

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
  ApiServerTest() {
    char name[] = "/tmp/carve-api-XXXXXX";
    path_ = std::string(::mkdtemp(name)) + "/agent.sock";
    auto opened = Server::open(path_, echo_, log_);
    EXPECT_TRUE(opened) << opened.error().what;
    server_ = std::move(*opened);
    thread_ = std::jthread([this](const std::stop_token& stop) { server_->run(stop); });
  }
  [[nodiscard]] bool is_refused() const {
    const auto fd = connect_to(path_);
    const auto reply = fd ? receive_frame(fd->get(), kMaxReplyBytes, std::chrono::seconds(5)) : std::string();
    return reply && reply->find("too many") != std::string::npos;
  }
  std::atomic<int> lines_{0};
  Log log_{[this](std::string_view) { ++lines_; }};
  Echo echo_;
  std::string path_;
  std::unique_ptr<Server> server_;
  std::jthread thread_;
};

TEST_F(ApiServerTest, TellsWhoAsks) {
  Client client(path_);
  const auto grant = client.allocate({}, {}, {});
  ASSERT_TRUE(grant) << grant.error().what;
  EXPECT_EQ(grant->slice, "pid-" + std::to_string(::getpid()) + "-uid-" + std::to_string(::getuid()));
  EXPECT_EQ(client.join({}, "x").error().what, "no slice x");
  EXPECT_TRUE(client.view({}));
}

TEST_F(ApiServerTest, ASecondServerIsRefusedAndAStaleSocketIsReplaced) {
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

TEST_F(ApiServerTest, NoiseEndsOnlyItsOwnConnection) {
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

TEST_F(ApiServerTest, WhoIsRefusedOftenIsLoggedSeldom) {
  std::vector<Result<Fd>> all;
  for (int i = 0; i < Server::kMaxConnections; ++i) all.push_back(connect_to(path_));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(is_refused());
  EXPECT_EQ(lines_, 1);
}

TEST_F(ApiServerTest, WhoeverGoesAwayStopsWaiting) {
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

}  // namespace
}  // namespace carve::api
