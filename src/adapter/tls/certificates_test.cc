#include "adapter/tls/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "port/testing/fake_kube_api.h"

namespace carve::tls {
namespace {

using carve::testing::FakeKubeApi;
using nlohmann::json;
using std::chrono::hours;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kSecret[] = "/api/v1/namespaces/carve-system/secrets/carve-control-tls";
constexpr char kClientSecret[] = "/api/v1/namespaces/carve-system/secrets/carve-scheduler-tls";
constexpr char kMutating[] = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/carve-admission";
constexpr char kValidating[] = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/carve-admission";

class CertificatesTest : public ::testing::Test {
 protected:
  /// One step of a replica. Records the certificate that it serves with afterwards.
  Result<void> step(Certificates& replica) {
    return replica.step([this](const Serving& serving) { served_.push_back(serving); });
  }
  std::string entry(const char* path, const char* name) const {
    const auto object = api_.object(path);
    if (!object) return {};
    const auto text = json::parse(*object)["data"].value(name, "");
    return from_base64(text).value_or("no base64");
  }
  std::string bundle_at(const char* path, int webhook) const {
    const auto object = json::parse(*api_.object(path));
    return from_base64(object["webhooks"][static_cast<std::size_t>(webhook)]["clientConfig"].value("caBundle", ""))
        .value_or("no base64");
  }
  void expect_whole() const {
    EXPECT_TRUE(signed_by(entry(kSecret, "tls.crt"), entry(kSecret, "ca.crt")));
    EXPECT_TRUE(belongs(entry(kSecret, "tls.crt"), entry(kSecret, "tls.key")));
    EXPECT_TRUE(belongs(entry(kSecret, "ca.crt"), entry(kSecret, "ca.key")));
    EXPECT_TRUE(signed_by(entry(kClientSecret, "tls.crt"), entry(kSecret, "ca.crt")));
    EXPECT_TRUE(belongs(entry(kClientSecret, "tls.crt"), entry(kClientSecret, "tls.key")));
    EXPECT_EQ(entry(kClientSecret, "ca.crt"), entry(kSecret, "ca.crt"));
    EXPECT_EQ(entry(kClientSecret, "ca.key"), "") << "only control has the authority's key";
  }

  FakeKubeApi api_;
  ManualClock clock_;
  std::mutex mutex_;
  std::string logged_;
  Log log_{[this](std::string_view line) {
    const std::lock_guard lock(mutex_);
    logged_ += line;
  }};
  std::vector<Serving> served_;
  Certificates one_{api_, clock_, log_, {}, {hours(24 * 360), hours(24 * 30)}};
  Certificates other_{api_, clock_, log_, {}, {hours(24 * 360), hours(24 * 30)}};
};

TEST_F(CertificatesTest, OneReplicaIssuesAndTheOtherReads) {
  ASSERT_TRUE(step(one_));
  const auto writes = api_.writes().size();
  EXPECT_EQ(writes, 2U);
  ASSERT_TRUE(step(other_));
  ASSERT_TRUE(step(one_));
  EXPECT_EQ(api_.writes().size(), writes) << "no renewal is due";
  ASSERT_THAT(served_, SizeIs(2));
  EXPECT_EQ(served_[0].pair, served_[1].pair);
  EXPECT_EQ(one_.good_until(), facts_of(served_[0].pair.certificate)->life.until);
  expect_whole();
}

TEST_F(CertificatesTest, TwoConcurrentReplicasAgree) {
  for (int round = 0; round < 20; ++round) {
    api_.erase(kSecret);
    api_.erase(kClientSecret);
    std::vector<Serving> a, b;
    Result<void> a_done, b_done;
    {
      const std::jthread first([&] { a_done = one_.step([&](const Serving& serving) { a.push_back(serving); }); });
      const std::jthread second([&] { b_done = other_.step([&](const Serving& serving) { b.push_back(serving); }); });
    }
    ASSERT_TRUE(a_done) << a_done.error().what;
    ASSERT_TRUE(b_done) << b_done.error().what;
    ASSERT_THAT(a, SizeIs(1));
    ASSERT_THAT(b, SizeIs(1));
    ASSERT_EQ(a[0].pair, b[0].pair) << "round " << round;
    ASSERT_EQ(a[0].pair.certificate, entry(kSecret, "tls.crt"));
    expect_whole();
  }
}

TEST_F(CertificatesTest, TheLoserOfARaceUsesTheCertificatesOfTheWinner) {
  ASSERT_TRUE(step(other_));
  // A replica reads "not found" while another one creates the Secret: its create fails, and it reads the Secret again.
  api_.fail_next({.verb = "get", .path = "carve-control-tls", .code = Code::kNotFound});
  ASSERT_TRUE(step(one_));
  ASSERT_THAT(served_, SizeIs(2));
  EXPECT_EQ(served_[0].pair, served_[1].pair);
  expect_whole();
}

TEST_F(CertificatesTest, AfterALostAnswerItReadsInsteadOfWritingAgain) {
  api_.fail_next({.verb = "create", .path = "secrets", .code = Code::kDeadlineExceeded, .done = true});
  ASSERT_TRUE(step(one_));
  ASSERT_THAT(served_, SizeIs(1));
  EXPECT_EQ(served_[0].pair.certificate, entry(kSecret, "tls.crt"));
  EXPECT_THAT(api_.writes(), SizeIs(2)) << "one for each Secret";
  expect_whole();
}

TEST_F(CertificatesTest, OneReplicaRenewsInTime) {
  ASSERT_TRUE(step(one_));
  ASSERT_TRUE(step(other_));
  clock_.advance(hours(24 * 21));
  ASSERT_TRUE(step(one_));
  ASSERT_TRUE(step(other_));
  ASSERT_THAT(served_, SizeIs(4));
  EXPECT_NE(served_[2].pair, served_[0].pair);
  EXPECT_EQ(served_[3].pair, served_[2].pair);
  EXPECT_THAT(api_.writes(), SizeIs(4)) << "two Secrets, created and renewed";
  expect_whole();
}

TEST_F(CertificatesTest, ReplacesInvalidEntriesAndKeepsForeignOnes) {
  api_.put(kSecret, R"({"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","labels":{"a":"b"}},"type":"Opaque",
    "data":{"ca.crt":"!!!","ca.key":"Z2FyYmFnZQ==","tls.crt":7,"note":"a2VlcA=="}})");
  api_.put(kClientSecret, R"({"kind":"Secret","metadata":{"name":"x"},"data":"nonsense"})");
  ASSERT_TRUE(step(one_));
  expect_whole();
  EXPECT_EQ(entry(kSecret, "note"), "keep");
  EXPECT_EQ(json::parse(*api_.object(kSecret))["metadata"]["labels"]["a"], "b");
  EXPECT_THAT(logged_, Not(HasSubstr("garbage")));
}

TEST_F(CertificatesTest, WritesTheAuthorityToCarvesWebhooks) {
  api_.put(kMutating, R"({"webhooks":[
    {"name":"a","clientConfig":{"service":{"namespace":"carve-system","name":"carve-control"}}},
    {"name":"b","clientConfig":{"url":"https://elsewhere","caBundle":"Y2FydmU="}}]})");
  api_.put(kValidating, R"({"webhooks":[
    {"clientConfig":{"caBundle":"b2xk","service":{"namespace":"carve-system","name":"carve-control"}}}]})");
  ASSERT_TRUE(step(one_));
  EXPECT_EQ(bundle_at(kMutating, 0), entry(kSecret, "ca.crt"));
  EXPECT_EQ(bundle_at(kMutating, 1), "carve") << "another service";
  EXPECT_EQ(bundle_at(kValidating, 0), entry(kSecret, "ca.crt"));
  const auto writes = api_.writes().size();
  ASSERT_TRUE(step(one_));
  EXPECT_EQ(api_.writes().size(), writes);
  // The webhooks receive a new authority before it signs a certificate.
  clock_.advance(hours(24 * 245));
  ASSERT_TRUE(step(one_));
  const auto both = certificates_in(entry(kSecret, "ca.crt"));
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_EQ(bundle_at(kMutating, 0), both[0] + both[1]);
  EXPECT_TRUE(signed_by(entry(kSecret, "tls.crt"), both[0]));
}

TEST_F(CertificatesTest, AWebhookThatAnotherReplicaWroteFirstIsReadAgain) {
  api_.put(kMutating, R"({"webhooks":[
    {"name":"a","clientConfig":{"service":{"namespace":"carve-system","name":"carve-control"}}}]})");
  api_.fail_next({.verb = "patch", .path = "carve-admission", .code = Code::kInvalidArgument});
  ASSERT_TRUE(step(one_));
  EXPECT_EQ(bundle_at(kMutating, 0), entry(kSecret, "ca.crt"));
  // A patch that is refused for another reason is an error.
  api_.put(kMutating, R"({"webhooks":[
    {"name":"a","clientConfig":{"service":{"namespace":"carve-system","name":"carve-control"}}}]})");
  api_.fail_next({.verb = "patch", .path = "carve-admission", .code = Code::kInvalidArgument, .times = 100});
  EXPECT_FALSE(step(one_));
}

TEST_F(CertificatesTest, KeepsTheCertificateWhileTheApiServerIsUnavailable) {
  ASSERT_TRUE(step(one_));
  api_.set_away(true);
  const auto failed = step(one_);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kUnavailable);
  EXPECT_THAT(failed.error().what, HasSubstr("Secret carve-control-tls"));
  EXPECT_THAT(served_, SizeIs(1));
  EXPECT_GT(one_.good_until(), clock_.wall_now());
}

TEST_F(CertificatesTest, NeverLogsAKey) {
  api_.fail_next({.verb = "replace", .path = "", .code = Code::kInvalidArgument, .done = false, .times = 3});
  ASSERT_TRUE(step(one_));
  clock_.advance(hours(24 * 300));
  (void)step(one_);
  ASSERT_TRUE(step(other_) || true);
  const std::string lines = logged_;
  EXPECT_THAT(lines, HasSubstr("certificates renewed"));
  EXPECT_THAT(lines, Not(HasSubstr("PRIVATE KEY")));
  for (const char* name : {"ca.key", "tls.key"}) {
    const auto key = entry(kSecret, name);
    ASSERT_GT(key.size(), 80U);
    EXPECT_THAT(lines, Not(HasSubstr(key.substr(40, 20))));
    EXPECT_THAT(lines, Not(HasSubstr(to_base64(key).substr(40, 20))));
  }
}

TEST_F(CertificatesTest, TheLoopRetriesAndLogsAnErrorOnce) {
  api_.set_away(true);
  std::jthread running([this](const std::stop_token& stop) {
    one_.run([this](const Serving& serving) { served_.push_back(serving); }, stop);
  });
  for (int i = 0; i < 3; ++i) {
    clock_.wait_for_sleepers(1);
    clock_.advance(std::chrono::seconds(2));
  }
  clock_.wait_for_sleepers(1);
  api_.set_away(false);
  clock_.advance(std::chrono::seconds(2));
  ASSERT_TRUE(api_.wait_writes(2, std::chrono::seconds(10)));
  clock_.wait_for_sleepers(1);
  running.request_stop();
  running.join();
  EXPECT_THAT(served_, SizeIs(1));
  const auto first = logged_.find("certificates cannot be maintained");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(logged_.find("certificates cannot be maintained", first + 1), std::string::npos);
}

/// Runs the loop in its own thread until the end of the test.
struct CertificatesLoop : CertificatesTest {
  std::jthread running{[this](const std::stop_token& stop) { one_.run([](const Serving&) {}, stop); }};
  /// Waits until the API server has received this number of requests, because a woken loop needs a moment.
  bool wait_gets(std::size_t count) {
    for (int i = 0; i < 10000 && api_.calls("get") < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return api_.calls("get") >= count;
  }
  static std::string webhook(const std::string& service) {
    return R"({"webhooks":[{"clientConfig":{"service":{"namespace":"carve-system","name":")" + service + R"("}}}]})";
  }
};

TEST_F(CertificatesLoop, RestoresTheAuthorityOfAWebhookImmediately) {
  constexpr std::chrono::seconds kLimit{10};
  ASSERT_TRUE(api_.wait_writes(2, kLimit));
  ASSERT_TRUE(api_.wait_watches(4, kLimit));
  // The clock does not advance: only a watch can report the change.
  for (std::size_t i = 0; i < 2; ++i) {
    api_.put(kMutating, webhook("carve-control"));
    ASSERT_TRUE(api_.wait_writes(3 + i, kLimit));
    EXPECT_EQ(bundle_at(kMutating, 0), entry(kSecret, "ca.crt"));
  }
  api_.erase(kClientSecret);
  ASSERT_TRUE(api_.wait_writes(5, kLimit));
  EXPECT_NE(entry(kClientSecret, "tls.crt"), "");
}

TEST_F(CertificatesLoop, SendsNoRequestsWhileNothingChanges) {
  ASSERT_TRUE(api_.wait_writes(2, std::chrono::seconds(10)));
  ASSERT_TRUE(api_.wait_watches(4, std::chrono::seconds(10)));
  for (int i = 0; i < 100; ++i) {
    clock_.wait_for_sleepers(1);  // the loop has completed its step
    clock_.advance(std::chrono::seconds(3));
  }
  clock_.wait_for_sleepers(1);
  const auto asked = api_.calls("get");
  EXPECT_LT(asked, 60U) << "five minutes; steps every three seconds would be 400";
  clock_.advance(std::chrono::minutes(10));
  EXPECT_TRUE(wait_gets(asked + 4)) << "the check for due renewals";
}

TEST_F(CertificatesLoop, PollsWhileTheWatchesFail) {
  ASSERT_TRUE(api_.wait_watches(4, std::chrono::seconds(10)));
  api_.set_away(true);  // each watch reports the error once and works again when the server is back
  ASSERT_TRUE(api_.wait_watches(4, std::chrono::seconds(10)));
  api_.set_away(false);
  for (int i = 0; i < 10; ++i) {
    const auto before = api_.calls("get");
    clock_.wait_for_sleepers(1);
    clock_.advance(std::chrono::seconds(3));
    ASSERT_TRUE(wait_gets(before + 4)) << "after " << 3 * (i + 1) << " s";
  }
}

}  // namespace
}  // namespace carve::tls
