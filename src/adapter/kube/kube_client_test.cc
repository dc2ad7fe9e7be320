#include "adapter/kube/kube_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "adapter/kube/testing/tls_server.h"

namespace carve::kube {
namespace {

using carve::kube::testing::make_self_signed;
using carve::kube::testing::TlsServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Peer = TlsServer::Peer;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Records the deliveries of a watch, in order, as words.
class Seen {
 public:
  KubeSink sink() {
    return {.replace = [this](const auto& all) { add("list " + std::to_string(all.size())); },
            .change =
                [this](const KubeChange& one) {
                  add((one.kind == KubeChange::Kind::kPut ? "put " : "gone ") + one.object);
                },
            .trouble = [this](const Error& error) { add("trouble " + error.what); }};
  }
  bool wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    return more_.wait_for(lock, std::chrono::seconds(10), [&] { return words_.size() >= count; });
  }
  std::vector<std::string> words() {
    const std::lock_guard lock(mutex_);
    return words_;
  }

 private:
  void add(std::string word) {
    const std::lock_guard lock(mutex_);
    words_.push_back(std::move(word));
    more_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::string> words_;
};

class KubeClient : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // the scripted server writes to clients that have disconnected
    std::string name = (std::filesystem::temp_directory_path() / "carve-kube-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ + "/" + name) << text; }
  std::string config(int port, const std::string& user = "{tokenFile: token}", const std::string& host = "127.0.0.1",
                     const std::string& more = "", const std::string& path = "") {
    write("config", "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, "
                    "cluster: {server: \"https://" + host + ":" + std::to_string(port) + path +
                    "\", certificate-authority: ca.pem" + more + "}}]\nusers: [{name: u, user: " + user + "}]\n");
    return folder_ + "/config";
  }
  std::unique_ptr<KubeApi> client(const TlsServer& server) {
    auto made = open(config(server.port()), clock_, log_, limits_);
    EXPECT_TRUE(made) << made.error().what;
    return made ? std::move(*made) : nullptr;
  }
  std::unique_ptr<TlsServer> server(TlsServer::Script script, const std::string& names = "IP:127.0.0.1") {
    const auto identity = make_self_signed(names);
    write("ca.pem", identity.certificate);
    write("token", "s3cret-one\n");
    return std::make_unique<TlsServer>(identity, std::move(script));
  }

  std::string folder_;
  SystemClock clock_;
  std::string logged_;
  std::mutex log_mutex_;
  Log log_{[this](std::string_view line) {
    const std::lock_guard lock(log_mutex_);
    logged_ += line;
  }};
  Limits limits_{.call = milliseconds(3000),
                 .page = milliseconds(3000),
                 .silence = milliseconds(3000),
                 .first_back_off = milliseconds(10),
                 .most_back_off = milliseconds(50)};
};

TEST_F(KubeClient, SendsTheRequestsThatTheApiServerExpects) {
  std::vector<std::string> requests;
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      requests.push_back(*request);
      peer.answer(200, R"({"kind":"PodList","metadata":{},"items":[]})");
    }
  });
  {
    const auto api = client(*one);
    EXPECT_TRUE(api->get("/api/v1/pods", {{"a", "b c"}}));
    EXPECT_TRUE(api->create("/p", "{}"));
    EXPECT_TRUE(api->replace("/p", "{}"));
    EXPECT_TRUE(api->patch("/p", KubePatch::kJson, "[]"));
    EXPECT_TRUE(api->patch("/p", KubePatch::kMerge, "{}"));
    EXPECT_TRUE(api->patch("/p", KubePatch::kStrategic, "{}"));
    EXPECT_TRUE(api->patch("/p", KubePatch::kApply, "{}", {{"force", "true"}}));
    EXPECT_TRUE(api->remove("/p"));
    EXPECT_TRUE(api->list("/l"));
    EXPECT_EQ(one->connections(), 1);  // all requests used one connection
  }
  ASSERT_EQ(requests.size(), 9U);
  EXPECT_THAT(requests[0], StartsWith("GET /api/v1/pods?a=b%20c HTTP/1.1\r\n"));
  EXPECT_THAT(requests[0], HasSubstr("\r\nAuthorization: Bearer s3cret-one\r\n"));
  EXPECT_THAT(requests[1], StartsWith("POST /p HTTP"));
  EXPECT_THAT(requests[2], StartsWith("PUT /p HTTP"));
  EXPECT_THAT(requests[2], HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(requests[3], HasSubstr("application/json-patch+json"));
  EXPECT_THAT(requests[4], HasSubstr("application/merge-patch+json"));
  EXPECT_THAT(requests[5], HasSubstr("application/strategic-merge-patch+json"));
  EXPECT_THAT(requests[6], HasSubstr("application/apply-patch+yaml"));
  EXPECT_THAT(requests[6], StartsWith("PATCH /p?force=true&fieldManager=carve HTTP"));
  EXPECT_THAT(requests[7], StartsWith("DELETE /p HTTP"));
  EXPECT_THAT(requests[8], StartsWith("GET /l?limit=250 HTTP"));
}

TEST_F(KubeClient, AServerMayBeBelowAPath) {
  std::vector<std::string> requests;
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      requests.push_back(*request);
      peer.answer(200, R"({"kind":"PodList","metadata":{},"items":[]})");
    }
  });
  for (const std::string path : {"/k8s/clusters/c-1", "/k8s/clusters/c-1/", "/"}) {
    const auto api = open(config(one->port(), "{tokenFile: token}", "127.0.0.1", "", path), clock_, log_, limits_);
    ASSERT_TRUE(api) << api.error().what;
    EXPECT_TRUE((*api)->get("/api/v1/pods", {{"a", "b"}})) << path;
  }
  for (const std::string path : {"/a b", "/a?b", "/a#b", "/a\\r\\nHost: c"}) {
    const auto api = open(config(one->port(), "{tokenFile: token}", "127.0.0.1", "", path), clock_, log_, limits_);
    ASSERT_FALSE(api) << path;
    EXPECT_THAT(api.error().what, HasSubstr("expected https://host[:port][/path]"));
  }
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_THAT(requests[0], StartsWith("GET /k8s/clusters/c-1/api/v1/pods?a=b HTTP/1.1\r\n"));
  EXPECT_THAT(requests[1], StartsWith("GET /k8s/clusters/c-1/api/v1/pods?a=b HTTP/1.1\r\n"));
  EXPECT_THAT(requests[2], StartsWith("GET /api/v1/pods?a=b HTTP/1.1\r\n"));
}

TEST_F(KubeClient, MapsEveryStatusToItsCode) {
  std::atomic<int> status = 0;
  const auto one = server([&](Peer& peer, int) {
    while (peer.request()) peer.answer(status, R"({"kind":"Status","message":"so it is"})");
  });
  const auto api = client(*one);
  const std::pair<int, Code> table[] = {
      {400, Code::kInvalidArgument},  {401, Code::kPermissionDenied}, {403, Code::kPermissionDenied},
      {404, Code::kNotFound},         {409, Code::kAborted},          {422, Code::kInvalidArgument},
      {429, Code::kResourceExhausted}, {500, Code::kInternal},        {502, Code::kInternal},
      {503, Code::kInternal},         {504, Code::kDeadlineExceeded}};
  for (const auto& [sent, expected] : table) {
    status = sent;
    const auto result = api->replace("/api/x", "{}");
    ASSERT_FALSE(result) << sent;
    EXPECT_EQ(result.error().code, expected) << sent;
    EXPECT_THAT(result.error().what, HasSubstr("so it is"));
    EXPECT_THAT(result.error().what, HasSubstr("PUT /api/x"));
  }
  status = 409;
  EXPECT_EQ(api->create("/api/x", "{}").error().code, Code::kAlreadyExists);
}

// The server also returns 429 when it is overloaded.
TEST_F(KubeClient, OnlyTheCauseTellsABudgetFromAnOverloadedServer) {
  std::atomic<bool> budget = true;
  const auto one = server([&](Peer& peer, int) {
    while (peer.request()) {
      peer.answer(429, budget ? R"({"kind":"Status","message":"Cannot evict","details":{"causes":[)"
                                R"({"reason":"DisruptionBudget","message":"needs 1 healthy pod"}]}})"
                              : R"({"kind":"Status","message":"too many requests, please try again later"})");
    }
  });
  const auto api = client(*one);
  const auto refused = api->create("/api/v1/namespaces/s/pods/a/eviction", "{}");
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().what, HasSubstr("Cannot evict"));
  budget = false;
  EXPECT_EQ(api->create("/api/v1/namespaces/s/pods/a/eviction", "{}").error().code, Code::kResourceExhausted);
}

// With a 500, etcd may have executed the write; with a 502, the API server may still execute it.
TEST_F(KubeClient, AFailedWriteMayHaveBeenExecutedUnlessItHasRetryAfter) {
  std::atomic<int> status = 0;
  std::atomic<int> asked = 0;
  std::atomic<bool> later = false;
  const auto one = server([&](Peer& peer, int) {
    while (peer.request()) {
      ++asked;
      peer.answer(status, "{}", later ? "Retry-After: 600\r\n" : "");
    }
  });
  const auto api = client(*one);
  for (const int sent : {500, 502, 503}) {
    status = sent;
    EXPECT_EQ(api->get("/p").error().code, Code::kUnavailable) << sent;
    asked = 0;
    const auto done = api->patch("/p", KubePatch::kMerge, "{}");
    EXPECT_TRUE(may_be_done(done.error())) << sent;
    EXPECT_THAT(done.error().what, HasSubstr("it is unknown whether the write was executed"));
    EXPECT_EQ(asked, 1) << "the write is not sent again";
  }
  later = true;
  EXPECT_EQ(api->create("/p", "{}").error().code, Code::kUnavailable);
}

TEST_F(KubeClient, RefusesAPathThatWouldAddHeaders) {
  const auto one = server([](Peer& peer, int) { peer.stall(); });
  const auto api = client(*one);
  EXPECT_EQ(api->get("/a\r\nHost: b").error().code, Code::kInvalidArgument);
  EXPECT_EQ(one->connections(), 0);
}

TEST_F(KubeClient, AStalledServerIsDeadlineExceeded) {
  limits_.call = milliseconds(200);
  const auto one = server([](Peer& peer, int) { peer.stall(); });
  const auto api = client(*one);
  const auto began = steady_clock::now();
  const auto result = api->create("/p", "{}");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(2));
}

TEST_F(KubeClient, BrokenConnectionsAndInvalidAnswersAreUnavailable) {
  std::atomic<int> turn = 0;
  const auto one = server([&](Peer& peer, int) {
    (void)peer.request();
    switch (turn) {
      case 0: peer.cut(); break;
      case 1: peer.send("\x16\x03garbage\r\n\r\n"); break;
      case 2: peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"); break;
      case 3: peer.begin_chunks(); peer.chunk("{"); peer.cut(); break;
      default: peer.begin_chunks(); peer.send("zz\r\n");
    }
  });
  const auto api = client(*one);
  for (; turn < 5; ++turn) {
    const auto result = api->get("/p");
    ASSERT_FALSE(result) << turn;
    EXPECT_EQ(result.error().code, Code::kUnavailable) << result.error().what;
  }
}

TEST_F(KubeClient, JoinsChunksAndPagesToOneList) {
  std::vector<std::string> targets;
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      targets.push_back(request->substr(0, request->find(" HTTP")));
      const bool first = targets.size() == 1;
      const std::string page = std::string(R"({"kind":"PodList","apiVersion":"v1","metadata":{)") +
                               (first ? R"("continue":"n=x",)" : "") + R"("resourceVersion":"1"},"items":[{"n":)" +
                               (first ? "1" : "2") + "}]}";
      peer.begin_chunks();
      for (const char c : page) peer.chunk({&c, 1});
      peer.end_chunks();
    }
  });
  const auto all = client(*one)->list("/l", {{"labelSelector", "a=b"}});
  ASSERT_TRUE(all) << all.error().what;
  EXPECT_THAT(*all, ElementsAre(HasSubstr("\"n\":1"), HasSubstr("\"n\":2")));
  EXPECT_THAT(targets, ElementsAre("GET /l?labelSelector=a%3Db&limit=250",
                                   "GET /l?labelSelector=a%3Db&limit=250&continue=n%3Dx"));
}

TEST_F(KubeClient, ObeysRetryAfter) {
  std::atomic<int> asked = 0;
  const auto one = server([&](Peer& peer, int) {
    while (peer.request()) {
      if (asked++ == 0) {
        peer.answer(429, "slow", "Retry-After: 1\r\n");
      } else {
        peer.answer(200, "{}");
      }
    }
  });
  const auto began = steady_clock::now();
  EXPECT_TRUE(client(*one)->create("/p", "{}"));
  EXPECT_GE(steady_clock::now() - began, milliseconds(990));
  EXPECT_EQ(asked, 2);
}

TEST_F(KubeClient, ARetryAfterBeyondTheDeadlineFailsImmediately) {
  const auto one = server([&](Peer& peer, int) {
    while (peer.request()) peer.answer(429, "slow", "Retry-After: 600\r\n");
  });
  const auto began = steady_clock::now();
  EXPECT_EQ(client(*one)->create("/p", "{}").error().code, Code::kResourceExhausted);
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(2));
}

TEST_F(KubeClient, AConnectionThatEndedMeanwhileFailsNoCall) {
  const auto one = server([&](Peer& peer, int) {
    if (peer.request()) peer.answer(200, "{}");  // closes the connection without announcing it
  });
  const auto api = client(*one);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(api->get("/p"));
  EXPECT_EQ(one->connections(), 5);
}

TEST_F(KubeClient, NeverSendsAWriteTwice) {
  std::atomic<int> writes = 0;
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      if (request->starts_with("POST")) {
        ++writes;
        peer.cut();
        return;
      }
      peer.answer(200, "{}");
    }
  });
  const auto api = client(*one);
  EXPECT_TRUE(api->get("/p"));
  // Broken after the write was sent: it is unknown whether it was executed, unlike "nothing was executed".
  EXPECT_EQ(api->create("/p", "{}").error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(writes, 1);
}

TEST_F(KubeClient, RefusesACertificateOfAnotherServerAndSendsNothing) {
  std::atomic<int> requests = 0;
  const auto script = [&](Peer& peer, int) {
    if (peer.request()) ++requests;
  };
  const auto other = server(script, "IP:127.0.0.2,DNS:elsewhere");
  EXPECT_THAT(client(*other)->get("/p").error().what, HasSubstr("certificate"));
  const auto named = open(config(other->port(), "{tokenFile: token}", "127.0.0.1", ", tls-server-name: elsewhere"),
                          clock_, log_, limits_);
  ASSERT_TRUE(named);
  EXPECT_THAT((*named)->get("/p").error().what, Not(HasSubstr("certificate")));  // the handshake succeeded
  EXPECT_EQ(requests, 1);
  write("ca.pem", make_self_signed("IP:127.0.0.1").certificate);
  EXPECT_THAT(client(*other)->get("/p").error().what, HasSubstr("certificate"));
  EXPECT_EQ(requests, 1);
}

TEST_F(KubeClient, ReadsANewTokenWhenTheOldOneIsRefusedAndLogsNeither) {
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      const bool good = request->find("Bearer s3cret-two\r\n") != std::string::npos;
      peer.answer(good ? 200 : 401, "{\"message\":\"Unauthorized\"}");
    }
  });
  ManualClock clock;
  auto made = open(config(one->port()), clock, log_, limits_);
  ASSERT_TRUE(made);
  auto& api = **made;
  const auto refused = api.get("/p");
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_THAT(refused.error().what, Not(HasSubstr("s3cret")));
  write("token", "s3cret-two\n");
  clock.advance(std::chrono::seconds(2));
  EXPECT_TRUE(api.get("/p"));
  write("token", "s3cret-three\n");
  EXPECT_TRUE(api.get("/p"));  // still the token that was read in this minute
  clock.advance(std::chrono::seconds(61));
  EXPECT_FALSE(api.get("/p"));
  EXPECT_THAT(logged_, Not(HasSubstr("s3cret")));
}

TEST_F(KubeClient, RunsThePluginAgainWhenItsTokenIsRefusedAndLogsNeither) {
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      const bool good = request->find("Bearer s3cret-" + std::string(1, request->find("/two") < 9 ? '2' : '1')) !=
                        std::string::npos;
      peer.answer(good ? 200 : 401, "{\"message\":\"Unauthorized\"}");
    }
  });
  write("plug-in", "#!/bin/sh\nprintf x >> " + folder_ + "/runs\nprintf '%s' '" +
                       R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",)" +
                       R"("status":{"token":"s3cret-'$(wc -c < )" + folder_ + R"(/runs)'"}}')" + "\n");
  std::filesystem::permissions(folder_ + "/plug-in", std::filesystem::perms::owner_all);
  const auto runs = [&] { return std::filesystem::file_size(folder_ + "/runs"); };
  ManualClock clock;
  auto made = open(config(one->port(), "{exec: {command: ./plug-in, interactiveMode: Never, "
                                       "apiVersion: client.authentication.k8s.io/v1}}"),
                   clock, log_, limits_);
  ASSERT_TRUE(made) << made.error().what;
  auto& api = **made;
  EXPECT_TRUE(api.get("/one"));
  clock.advance(std::chrono::hours(1));
  EXPECT_TRUE(api.get("/one"));
  EXPECT_EQ(runs(), 1U) << "the files are read every minute, the plug-in does not run";
  const auto answered = api.create("/two", "{}");
  EXPECT_TRUE(answered) << answered.error().what;
  EXPECT_EQ(runs(), 2U);
  write("plug-in", "#!/bin/sh\necho s3cret\nexit 1\n");
  clock.advance(std::chrono::seconds(2));
  const auto refused = api.get("/one");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("exit status 1"));
  EXPECT_THAT(refused.error().what + logged_, Not(HasSubstr("s3cret")));
}

TEST_F(KubeClient, DoesNotRunThePluginAgainForAnUnavailableServer) {
  int port = 0;
  {
    const auto gone = server([](Peer& peer, int) { peer.cut(); });
    port = gone->port();
  }
  write("plug-in", "#!/bin/sh\nprintf x >> " + folder_ + "/runs\nprintf '%s' '" +
                       R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",)" +
                       R"("status":{"token":"t"}}')" + "\n");
  std::filesystem::permissions(folder_ + "/plug-in", std::filesystem::perms::owner_all);
  ManualClock clock;
  auto made = open(config(port, "{exec: {command: ./plug-in, interactiveMode: Never, "
                                "apiVersion: client.authentication.k8s.io/v1}}"),
                   clock, log_, limits_);
  ASSERT_TRUE(made) << made.error().what;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE((*made)->get("/p"));
    clock.advance(std::chrono::seconds(5));
  }
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/runs"), 1U);
}

TEST_F(KubeClient, NamesAnInvalidCertificateOfAPlugin) {
  const auto one = server([](Peer& peer, int) { peer.stall(); });
  write("plug-in", std::string("#!/bin/sh\nprintf '%s' '") +
                       R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",)" +
                       R"("status":{"clientCertificateData":"s3cret","clientKeyData":"s3cret"}}')" + "\n");
  std::filesystem::permissions(folder_ + "/plug-in", std::filesystem::perms::owner_all);
  const auto made = open(config(one->port(), "{exec: {command: ./plug-in, interactiveMode: Never, "
                                             "apiVersion: client.authentication.k8s.io/v1}}"),
                         clock_, log_, limits_);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().what, HasSubstr("client-certificate"));
  EXPECT_THAT(made.error().what, Not(HasSubstr("s3cret")));
}

TEST_F(KubeClient, MergesSeveralFilesAndSkipsMissingOnes) {
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      peer.answer(request->find("Bearer s3cret-one\r\n") != std::string::npos ? 200 : 401, "{}");
    }
  });
  const auto main = config(one->port(), "{token: other}");
  std::filesystem::create_directory(folder_ + "/users");
  write("users/config", "users: [{name: u, user: {tokenFile: ../token}}]");
  const auto api = open_merged({folder_ + "/none", folder_ + "/users/config", main}, clock_, log_, limits_);
  ASSERT_TRUE(api) << api.error().what;
  EXPECT_TRUE((*api)->get("/p"));
  const auto nothing = open_merged({folder_ + "/none", folder_ + "/neither"}, clock_, log_, limits_);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, Code::kNotFound);
  EXPECT_THAT(nothing.error().what, HasSubstr("/none:" + folder_ + "/neither"));
  EXPECT_EQ(open_merged({}, clock_, log_, limits_).error().code, Code::kNotFound);
}

TEST_F(KubeClient, NamesInvalidFilesAtTheStart) {
  EXPECT_THAT(open(folder_ + "/none", clock_, log_).error().what, HasSubstr("/none"));
  write("ca.pem", "no certificate");
  write("token", "x");
  EXPECT_THAT(open(config(1), clock_, log_).error().what, HasSubstr("certificate-authority"));
  write("ca.pem", make_self_signed("IP:127.0.0.1").certificate);
  write("token", "a\r\nHost: b");
  EXPECT_THAT(open(config(1), clock_, log_).error().what, HasSubstr("token"));
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_THAT(open("", clock_, log_).error().what, HasSubstr("KUBERNETES_SERVICE_HOST"));
}

constexpr const char* kEmptyList = R"({"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]})";

std::string event(const std::string& type, const std::string& version) {
  return R"({"type":")" + type + R"(","object":{"metadata":{"resourceVersion":")" + version + "\"}}}\n";
}

TEST_F(KubeClient, AWatchContinuesAtItsVersionAfterABrokenConnection) {
  std::vector<std::string> targets;
  const auto one = server([&](Peer& peer, int number) {
    while (auto request = peer.request()) {
      targets.push_back(request->substr(0, request->find("&timeoutSeconds")));
      if (request->find("watch=true") == std::string::npos) {
        peer.answer(200, kEmptyList);
        continue;
      }
      peer.begin_chunks();
      if (number <= 1) {
        const auto both = event("ADDED", "6") + event("BOOKMARK", "9");
        peer.chunk(both.substr(0, 20));
        peer.chunk(both.substr(20));
        peer.cut();
        return;
      }
      peer.chunk(event("DELETED", "10"));
      peer.stall();
    }
  });
  const auto api = client(*one);
  Seen seen;
  {
    const auto sink = seen.sink();
    std::jthread watching([&](const std::stop_token& stop) { api->watch("/l", {{"f", "x"}}, sink, stop); });
    ASSERT_TRUE(seen.wait(4));
    const auto began = steady_clock::now();
    watching.request_stop();
    watching.join();
    EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(2));  // the server is silent for three seconds
  }
  EXPECT_THAT(seen.words(), ElementsAre("list 0", HasSubstr("put {"), StartsWith("trouble "), HasSubstr("gone {")));
  ASSERT_EQ(targets.size(), 3U);
  EXPECT_THAT(targets[1], HasSubstr("GET /l?f=x&watch=true&allowWatchBookmarks=true&resourceVersion=5"));
  EXPECT_THAT(targets[2], HasSubstr("resourceVersion=9"));
}

class LostWatch : public KubeClient, public ::testing::WithParamInterface<int> {};

TEST_P(LostWatch, IsListedAgain) {
  const int how = GetParam();
  std::atomic<int> lists = 0;
  std::atomic<int> watches = 0;
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      if (request->find("watch=true") == std::string::npos) {
        ++lists;
        peer.answer(200, kEmptyList);
        continue;
      }
      if (watches++ > 0) {
        peer.begin_chunks();
        peer.stall();
        return;
      }
      if (how == 0) {
        peer.answer(410, R"({"kind":"Status","message":"too old"})");
        continue;
      }
      peer.begin_chunks();
      if (how == 1) peer.chunk("{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n");
      if (how == 2) peer.chunk("rubbish\n");
      if (how == 3) peer.chunk("{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"etcd\"}}\n");
      peer.stall();
    }
  });
  const auto api = client(*one);
  Seen seen;
  const auto sink = seen.sink();
  const std::size_t expected = how < 2 ? 2 : 3;
  std::jthread watching([&](const std::stop_token& stop) { api->watch("/l", {}, sink, stop); });
  ASSERT_TRUE(seen.wait(expected));
  watching.request_stop();
  watching.join();
  EXPECT_EQ(lists, 2);
  EXPECT_EQ(seen.words().front(), "list 0");
  EXPECT_EQ(seen.words().back(), "list 0");
}
INSTANTIATE_TEST_SUITE_P(Ways, LostWatch, ::testing::Range(0, 4));

TEST_F(KubeClient, AWatchReportsAnUnavailableServerOnceAndStopsWhileItWaits) {
  limits_.most_back_off = std::chrono::seconds(30);
  limits_.first_back_off = std::chrono::seconds(20);
  int port = 0;
  {
    const auto gone = server([](Peer& peer, int) { peer.cut(); });
    port = gone->port();
  }
  const auto api = open(config(port), clock_, log_, limits_);
  ASSERT_TRUE(api) << api.error().what;
  Seen seen;
  const auto sink = seen.sink();
  std::jthread watching([&](const std::stop_token& stop) { (*api)->watch("/l", {}, sink, stop); });
  ASSERT_TRUE(seen.wait(1));
  const auto began = steady_clock::now();
  watching.request_stop();
  watching.join();
  EXPECT_LT(steady_clock::now() - began, milliseconds(500));
  EXPECT_THAT(seen.words(), ElementsAre(StartsWith("trouble ")));
}

TEST_F(KubeClient, RestartsASilentWatchWithoutReportingTrouble) {
  limits_.silence = milliseconds(50);
  std::atomic<int> watches = 0;
  const auto one = server([&](Peer& peer, int) {
    while (auto request = peer.request()) {
      if (request->find("watch=true") == std::string::npos) {
        peer.answer(200, kEmptyList);
        continue;
      }
      peer.begin_chunks();
      if (++watches == 3) peer.chunk(event("ADDED", "6"));
      peer.stall();
    }
  });
  const auto api = client(*one);
  Seen seen;
  const auto sink = seen.sink();
  std::jthread watching([&](const std::stop_token& stop) { api->watch("/l", {}, sink, stop); });
  ASSERT_TRUE(seen.wait(2));
  watching.request_stop();
  watching.join();
  EXPECT_THAT(seen.words(), ElementsAre("list 0", HasSubstr("put {")));
}

}  // namespace
}  // namespace carve::kube
