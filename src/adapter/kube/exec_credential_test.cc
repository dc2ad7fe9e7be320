#include "adapter/kube/exec_credential.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/fd.h"

namespace carve::kube {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Terminal = codec::ExecPlugin::Terminal;

constexpr const char* kV1 = "client.authentication.k8s.io/v1";

std::string answer(const std::string& status, const std::string& version = kV1) {
  return R"({"kind":"ExecCredential","apiVersion":")" + version + R"(","status":)" + status + "}";
}

class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "carve-exec-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A plug-in that is a shell script with this text.
  codec::ExecPlugin script(const std::string& text) {
    const auto path = folder_ + "/plug-in";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    EXPECT_EQ(::chmod(path.c_str(), 0700), 0);
    codec::ExecPlugin plugin;
    plugin.command = path;
    plugin.environment = {{"FOLDER", folder_}};
    plugin.api_version = kV1;
    plugin.terminal = Terminal::kNever;
    plugin.install_hint = "install it";
    return plugin;
  }
  std::string content(const std::string& name) {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static Result<codec::ExecCredential> run(const codec::ExecPlugin& plugin, const PluginRun& how = {}) {
    return run_plugin(plugin, {"https://h:6443", "", "CA"}, how);
  }

  std::string folder_;
};

TEST_F(PluginTest, GetsArgumentsEnvironmentAndClusterButNoInput) {
  auto plugin = script("printf '%s %s' \"$1\" \"$2\" > $FOLDER/args\n"
                       "printf '%s' \"$KUBERNETES_EXEC_INFO\" > $FOLDER/info\n"
                       "printf '%s %s' \"$MINE\" \"${HOME:+inherited}\" > $FOLDER/env; cat > $FOLDER/input\n"
                       "echo '" + answer(R"({"token":"s3cret"})") + "'");
  plugin.args = {"get token", "--now"};
  plugin.environment.emplace_back("MINE", "old");
  plugin.environment.emplace_back("MINE", "new");
  plugin.environment.emplace_back("KUBERNETES_EXEC_INFO", "not this");
  plugin.wants_cluster = true;
  ::setenv("HOME", "/", 0);
  const auto result = run(plugin);
  ASSERT_TRUE(result) << result.error().what;
  EXPECT_EQ(result->token, "s3cret");
  EXPECT_EQ(content("args"), "get token --now");
  EXPECT_EQ(content("env"), "new inherited");
  EXPECT_EQ(content("input"), "");
  EXPECT_EQ(content("info"), R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":)"
                             R"({"interactive":false,"cluster":{"server":"https://h:6443",)"
                             R"("certificate-authority-data":"Q0E="}}})");
}

TEST_F(PluginTest, MayReturnACertificate) {
  const auto result = run(script("echo '" + answer(R"({"clientCertificateData":"C","clientKeyData":"K"})") + "'"));
  ASSERT_TRUE(result) << result.error().what;
  EXPECT_EQ(result->certificate + result->key, "CK");
}

TEST_F(PluginTest, IsSearchedInPathButNotInTheCurrentFolder) {
  auto plugin = script("echo '" + answer(R"({"token":"t"})") + "'");
  plugin.command = "plug-in";
  const std::string path = ::getenv("PATH");
  const auto here = std::filesystem::current_path();
  ::setenv("PATH", ("/nonexistent:" + folder_ + ":" + path).c_str(), 1);
  EXPECT_TRUE(run(plugin));
  std::filesystem::current_path(folder_);
  ::setenv("PATH", (".::" + path).c_str(), 1);
  const auto missing = run(plugin);
  std::filesystem::current_path(here);
  ::setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().what, AllOf(HasSubstr("\"plug-in\": not found in PATH"), HasSubstr("install it")));
}

TEST_F(PluginTest, AFailureHasTheInstallHintAndNoSecrets) {
  auto failing = script("echo s3cret; exit 3");
  failing.args = {"--client-secret=s3cret"};
  const auto failed = run(failing);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kPermissionDenied);
  EXPECT_THAT(failed.error().what, AllOf(HasSubstr("/plug-in\": exit status 3\ninstall it"), Not(HasSubstr("s3cret"))));
  EXPECT_THAT(run(script("kill -9 $$")).error().what, HasSubstr("killed by signal 9"));
  auto absent = script("");
  absent.command = folder_ + "/absent";
  EXPECT_THAT(run(absent).error().what, AllOf(HasSubstr("/absent"), HasSubstr("install it")));
  const auto beta = answer(R"({"token":"s3cret"})", "client.authentication.k8s.io/v1beta1");
  const auto other = run(script("echo '" + beta + "'"));
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().what, AllOf(HasSubstr("apiVersion"), Not(HasSubstr("s3cret"))));
  EXPECT_THAT(run(script("echo s3cret")).error().what, AllOf(HasSubstr("not JSON"), Not(HasSubstr("s3cret"))));
}

TEST_F(PluginTest, IsKilledWhenItWritesTooMuch) {
  const auto result = run(script("exec cat /dev/zero"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kResourceExhausted);
}

TEST_F(PluginTest, IsKilledWithItsChildrenWhenItHangs) {
  const auto fifo = folder_ + "/alive";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Fd alive(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto result = run(script("exec 3> $FOLDER/alive; sleep 600 & wait"), {.limit = milliseconds(500)});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(result.error().what, HasSubstr("did not end within 500 ms"));
  pollfd item = {alive.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 10'000), 1) << "a child still has the pipe";
  EXPECT_NE(item.revents & POLLHUP, 0);
}

TEST_F(PluginTest, EndsWithTheProcessEvenIfAChildKeepsItsOutput) {
  const auto fifo = folder_ + "/go";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Fd go(::open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const auto result = run(script("(read line < $FOLDER/go) 2> /dev/null & echo '" + answer(R"({"token":"t"})") + "'"));
  EXPECT_TRUE(result) << result.error().what;
  EXPECT_EQ(::write(go.get(), "\n", 1), 1);
  std::filesystem::remove(fifo);  // a child that has not opened it by now can no longer block on it
}

TEST_F(PluginTest, NeedsATerminalWhenItMustAskAPerson) {
  auto plugin = script("printf '%s' \"$KUBERNETES_EXEC_INFO\" > $FOLDER/info\n"
                       "echo '" + answer(R"({"token":"t"})") + "'");
  plugin.terminal = Terminal::kAlways;
  const auto refused = run(plugin);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(content("info"), "") << "the plug-in did not run";
  EXPECT_TRUE(run(plugin, {.terminal = true}));
  EXPECT_THAT(content("info"), HasSubstr(R"("interactive":true)"));
  plugin.terminal = Terminal::kIfAvailable;
  EXPECT_TRUE(run(plugin));
  EXPECT_THAT(content("info"), HasSubstr(R"("interactive":false)"));
}

/// A plug-in that counts its runs and prints the content of a file.
struct KeptCredentialTest : PluginTest {
  codec::ExecPlugin counting() { return script("printf x >> $FOLDER/runs; cat $FOLDER/output"); }
  void prints(const std::string& status) { std::ofstream(folder_ + "/output") << answer(status); }
  std::size_t runs() { return content("runs").size(); }

  ManualClock clock_;  // starts at 2026-01-01 00:00:00
  KeptCredential kept_{clock_, {}};
  const codec::ExecCluster cluster_{"https://h", "", ""};
};

TEST_F(KeptCredentialTest, IsKeptUntilShortlyBeforeItExpires) {
  const auto plugin = counting();
  prints(R"({"token":"one","expirationTimestamp":"2026-01-01T00:01:00Z"})");
  EXPECT_EQ(kept_.of(plugin, cluster_)->token, "one");
  clock_.advance(seconds(45));
  EXPECT_FALSE(kept_.is_due());
  EXPECT_EQ(kept_.of(plugin, cluster_)->token, "one");
  EXPECT_EQ(runs(), 1U);
  prints(R"({"token":"two"})");
  clock_.advance(seconds(6));
  EXPECT_TRUE(kept_.is_due());
  EXPECT_EQ(kept_.of(plugin, cluster_)->token, "two");
  clock_.advance(std::chrono::hours(100));
  EXPECT_FALSE(kept_.is_due()) << "the credential has no expiry";
  EXPECT_EQ(runs(), 2U);
}

TEST_F(KeptCredentialTest, IsRenewedWhenRefusedButAtMostOnceASecond) {
  const auto plugin = counting();
  prints(R"({"token":"one"})");
  ASSERT_TRUE(kept_.of(plugin, cluster_));
  kept_.refuse();
  EXPECT_FALSE(kept_.is_due());
  ASSERT_TRUE(kept_.of(plugin, cluster_));
  EXPECT_EQ(runs(), 1U);
  clock_.advance(seconds(1));
  EXPECT_TRUE(kept_.is_due());
  ASSERT_TRUE(kept_.of(plugin, cluster_));
  EXPECT_EQ(runs(), 2U);
  clock_.advance(seconds(10));
  EXPECT_FALSE(kept_.is_due());
}

TEST_F(KeptCredentialTest, AFailedPluginKeepsTheValidCredentialAndIsNotRunAgainSoon) {
  const auto plugin = counting();
  prints(R"({"token":"one","expirationTimestamp":"2026-01-01T00:01:00Z"})");
  ASSERT_TRUE(kept_.of(plugin, cluster_));
  std::filesystem::remove(folder_ + "/output");
  clock_.advance(seconds(52));
  EXPECT_EQ(kept_.of(plugin, cluster_)->token, "one") << "it is valid for seven more seconds";
  EXPECT_EQ(runs(), 2U);
  clock_.advance(seconds(8));
  EXPECT_FALSE(kept_.of(plugin, cluster_));
  EXPECT_EQ(runs(), 2U) << "ten seconds have not passed";
  clock_.advance(seconds(2));
  EXPECT_FALSE(kept_.of(plugin, cluster_));
  EXPECT_EQ(runs(), 3U);
  prints(R"({"token":"two"})");
  clock_.advance(seconds(10));
  EXPECT_EQ(kept_.of(plugin, cluster_)->token, "two");
}

TEST_F(KeptCredentialTest, IsForOneClusterAndOnePlugin) {
  auto plugin = counting();
  prints(R"({"token":"one"})");
  ASSERT_TRUE(kept_.of(plugin, cluster_));
  ASSERT_TRUE(kept_.of(plugin, {"https://other", "", ""}));
  EXPECT_EQ(runs(), 2U);
  plugin.args = {"other"};
  ASSERT_TRUE(kept_.of(plugin, {"https://other", "", ""}));
  EXPECT_EQ(runs(), 3U);
}

TEST_F(KeptCredentialTest, AnExpiredCredentialIsUsedForASecond) {
  const auto plugin = counting();
  prints(R"({"token":"old","expirationTimestamp":"2020-01-01T00:00:00Z"})");
  EXPECT_TRUE(kept_.of(plugin, cluster_)) << "the local clock may be wrong";
  EXPECT_TRUE(kept_.of(plugin, cluster_));
  EXPECT_EQ(runs(), 1U);
  clock_.advance(seconds(1));
  EXPECT_TRUE(kept_.of(plugin, cluster_));
  EXPECT_EQ(runs(), 2U);
}

}  // namespace
}  // namespace carve::kube
