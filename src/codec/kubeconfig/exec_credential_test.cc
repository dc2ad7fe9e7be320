#include "codec/kubeconfig/exec_credential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace carve::codec {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kV1 = "client.authentication.k8s.io/v1";

Result<ExecCredential> said(const std::string& status, const std::string& version = kV1) {
  return parse_exec_credential(
      R"({"kind":"ExecCredential","apiVersion":")" + version + R"(","spec":{},"status":)" + status + "}", kV1);
}

std::string refusal(const std::string& status) {
  const auto credential = said(status);
  return credential ? "accepted" : credential.error().what;
}

TEST(ExecCredential, IsATokenOrACertificateOrBoth) {
  const auto token = said(R"({"token":"t","expirationTimestamp":"2026-01-01T00:00:10Z"})");
  ASSERT_TRUE(token) << token.error().what;
  EXPECT_EQ(token->token, "t");
  EXPECT_EQ(token->expires_unix_s, 1767225610);
  const auto pair = said(R"({"clientCertificateData":"c\n","clientKeyData":"k","token":null})");
  ASSERT_TRUE(pair) << pair.error().what;
  EXPECT_EQ(pair->certificate, "c\n");
  EXPECT_EQ(pair->key, "k");
  EXPECT_EQ(pair->expires_unix_s, std::nullopt);
  EXPECT_TRUE(said(R"({"clientCertificateData":"c","clientKeyData":"k","token":"t"})"));
}

TEST(ExecCredential, AFaultyFieldIsNamedAndNeverQuoted) {
  EXPECT_THAT(refusal("null"), HasSubstr("status: expected a map"));
  EXPECT_THAT(refusal("{}"), HasSubstr("expected token, or"));
  EXPECT_THAT(refusal(R"({"token":["s3cret"]})"), HasSubstr("status.token"));
  EXPECT_THAT(refusal(R"({"token":"s3cret","clientKeyData":"s3cret"})"), HasSubstr("must be set together"));
  EXPECT_THAT(refusal(R"({"token":"s3cret","expirationTimestamp":"s3cret"})"), HasSubstr("expirationTimestamp"));
  const auto other = said(R"({"token":"s3cret"})", "client.authentication.k8s.io/v1beta1");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().what, HasSubstr("apiVersion"));
  for (const std::string text : {"", "s3cret", "{\"s3cret\":", "[]", "\"s3cret\"", R"({"kind":"s3cret"})"}) {
    const auto broken = parse_exec_credential(text, kV1);
    ASSERT_FALSE(broken) << text;
    EXPECT_EQ(broken.error().code, Code::kInvalidArgument);
    EXPECT_THAT(broken.error().what, Not(HasSubstr("s3cret")));
  }
  for (const std::string status : {R"({"token":["s3cret"]})", R"({"token":"s3cret","clientKeyData":"s3cret"})",
                                   R"({"token":"s3cret","expirationTimestamp":"s3cret"})"}) {
    EXPECT_THAT(refusal(status), Not(HasSubstr("s3cret")));
  }
}

TEST(ExecCredential, ExpiresAtATimeOfAnyZone) {
  const auto expires = [](const std::string& time) {
    const auto credential = said(R"({"token":"t","expirationTimestamp":")" + time + "\"}");
    return credential ? credential->expires_unix_s : std::nullopt;
  };
  EXPECT_EQ(expires("2026-01-01T02:00:10.123456+02:00"), 1767225610);
  EXPECT_EQ(expires("2025-12-31T19:30:10-04:30"), 1767225610);
  EXPECT_EQ(expires("9999-12-31T23:59:59Z"), 253402300799);
  EXPECT_EQ(expires("1969-12-31T23:59:59Z"), -1);
  for (const std::string time : {"2026-01-01", "2026-01-01T00:00:10", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z",
                                 "2026-01-01T00:00:10.Z", "2026-01-01T00:00:10+2:00", "2026-01-01T00:00:10Zx",
                                 "2026-01-01 00:00:10Z", "-026-01-01T00:00:00Z", "2026-01-01T00:00:10.5"}) {
    EXPECT_EQ(expires(time), std::nullopt) << time;
  }
}

TEST(ExecCredential, ATimeIsReadUpToItsLimitsAndEveryCharacterCounts) {
  const auto expires = [](const std::string& time) {
    const auto credential = said(R"({"token":"t","expirationTimestamp":")" + time + "\"}");
    return credential ? credential->expires_unix_s : std::nullopt;
  };
  EXPECT_EQ(expires("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(expires("1970-01-02t23:59:60z"), 2 * 86400);
  EXPECT_EQ(expires("1970-01-01T00:00:00-23:59"), 86340);
  EXPECT_EQ(expires("1970-01-02T00:00:00+23:59"), 60);
  EXPECT_EQ(expires("2024-02-29T00:00:00.0Z"), 1709164800);
  const std::string good = "2026-01-01T00:00:10+02:00";
  ASSERT_TRUE(expires(good));
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = '_';
    EXPECT_EQ(expires(bad), std::nullopt) << bad;
    EXPECT_EQ(expires(good.substr(0, at)), std::nullopt) << "cut at " << at;
    EXPECT_EQ(expires(good.substr(0, at) + good.substr(at + 1)), std::nullopt) << "without character " << at;
  }
  for (const std::string time :
       {"2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
        "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+00:60", "2025-02-29T00:00:00Z", "2026-01-01T00:00:00+02:000"})
    EXPECT_EQ(expires(time), std::nullopt) << time;
}

TEST(ExecCredential, APluginGetsTheClusterWhenItRequestsIt) {
  ExecPlugin plugin;
  plugin.api_version = kV1;
  plugin.cluster_config = R"({"a":[1]})";
  const ExecCluster cluster{"https://h", "n", "CA"};
  EXPECT_EQ(exec_info(plugin, cluster, true),
            R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":true}})");
  plugin.wants_cluster = true;
  EXPECT_THAT(exec_info(plugin, cluster, false),
              HasSubstr(R"("spec":{"interactive":false,"cluster":{"server":"https://h","tls-server-name":"n",)"
                        R"("certificate-authority-data":"Q0E=","config":{"a":[1]}}})"));
}

}  // namespace
}  // namespace carve::codec
