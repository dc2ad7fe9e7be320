#include "codec/kubeconfig/kubeconfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace carve::codec {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string config_with(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
         "contexts:\n- name: other\n  context: {cluster: no, user: no}\n"
         "- name: here\n  context: {cluster: c, user: u, namespace: x}\n"
         "clusters:\n- name: c\n  cluster: " + cluster + "\nusers:\n- name: u\n  user: " + user + "\n";
}

TEST(Kubeconfig, TheCurrentContextGivesServerAndCredentials) {
  const auto config = parse_kubeconfig(config_with(
      "{server: \"https://10.0.0.1:6443\", certificate-authority-data: Q0E=, tls-server-name: kubernetes}",
      "{client-certificate: c.pem, client-key-data: S0VZ}"));
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->tls_server_name, "kubernetes");
  EXPECT_EQ(config->authority.bytes, "CA");
  EXPECT_EQ(config->certificate.file, "c.pem");
  EXPECT_EQ(config->key.bytes, "KEY");
  EXPECT_TRUE(config->token.empty());
}

TEST(Kubeconfig, JsonIsYamlToo) {
  const auto config = parse_kubeconfig(
      R"({"current-context":"a","contexts":[{"name":"a","context":{"cluster":"b","user":"c"}}],)"
      R"("clusters":[{"name":"b","cluster":{"server":"https://h"}}],"users":[{"name":"c","user":{"token":"t"}}]})");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->token.bytes, "t");
}

TEST(Kubeconfig, TheTokensFileWinsOverTheTextBesideIt) {
  const auto config = parse_kubeconfig(config_with("{server: \"https://h\"}", "{token: old, tokenFile: /t}"));
  ASSERT_TRUE(config);
  EXPECT_EQ(config->token.file, "/t");
  EXPECT_EQ(config->token.bytes, "");
}

TEST(Kubeconfig, WhatIsNotSupportedIsRefusedByName) {
  const auto what = [](const std::string& cluster, const std::string& user) {
    const auto config = parse_kubeconfig(config_with(cluster, user));
    return config ? std::string("accepted") : config.error().what;
  };
  const std::string good = "{server: \"https://h\"}";
  EXPECT_THAT(what("{server: \"http://h\"}", "{}"), HasSubstr("cluster.server"));
  EXPECT_THAT(what("{server: \"https://h\", insecure-skip-tls-verify: true}", "{}"), HasSubstr("insecure"));
  EXPECT_THAT(what("{server: \"https://h\", proxy-url: \"http://p\"}", "{}"), HasSubstr("proxy-url"));
  EXPECT_THAT(what(good, "{exec: {command: x}}"), HasSubstr("user.exec"));
  EXPECT_THAT(what(good, "{as: root}"), HasSubstr("user.as"));
  EXPECT_THAT(what(good, "{client-certificate: x}"), HasSubstr("go together"));
  EXPECT_THAT(what(good, "{client-key-data: \"%%\", client-certificate: x}"), HasSubstr("client-key-data"));
  EXPECT_EQ(what(good, "{}"), "accepted");
}

TEST(Kubeconfig, ErrorsDoNotQuoteCredentials) {
  const auto broken = parse_kubeconfig(config_with("{server: \"https://h\"}", "{token: \"s3cret, x"));
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::kInvalidArgument);
  EXPECT_THAT(broken.error().what, Not(HasSubstr("s3cret")));
}

TEST(Kubeconfig, RubbishIsAnError) {
  for (const std::string text : {"", "[]", "a", "{", "current-context: [a]", "current-context: x\ncontexts: 3"}) {
    EXPECT_FALSE(parse_kubeconfig(text)) << text;
  }
}

TEST(Base64, DecodesWithPaddingAndRefusesTheRest) {
  EXPECT_EQ(*decode_base64(""), "");
  EXPECT_EQ(*decode_base64("TQ=="), "M");
  EXPECT_EQ(*decode_base64("TWE="), "Ma");
  EXPECT_EQ(*decode_base64("TW\nFu"), "Man");
  for (const std::string text : {"T", "TQ", "TQ=", "T===", "====", "TQ==TQ=", "T-_="}) {
    EXPECT_FALSE(decode_base64(text)) << text;
  }
}

}  // namespace
}  // namespace carve::codec
