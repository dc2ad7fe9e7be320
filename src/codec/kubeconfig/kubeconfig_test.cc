#include "codec/kubeconfig/kubeconfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/base64.h"

namespace carve::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string config_with(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
         "contexts:\n- name: other\n  context: {cluster: no, user: no}\n"
         "- name: here\n  context: {cluster: c, user: u, namespace: x}\n"
         "clusters:\n- name: c\n  cluster: " +
         cluster + "\nusers:\n- name: u\n  user: " + user + "\n";
}

TEST(Kubeconfig, TheCurrentContextHasServerAndCredentials) {
  const auto config = parse_kubeconfig(
      config_with("{server: \"https://10.0.0.1:6443\", certificate-authority-data: Q0E=, tls-server-name: kubernetes}",
                  "{client-certificate: c.pem, client-key-data: S0VZ}"));
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->tls_server_name, "kubernetes");
  EXPECT_EQ(config->authority.bytes, "CA");
  EXPECT_EQ(config->certificate.file, "c.pem");
  EXPECT_EQ(config->key.bytes, "KEY");
  EXPECT_TRUE(config->token.empty());
}

TEST(Kubeconfig, AYamlErrorHasTheLineNumberButNotItsText) {
  const auto broken = parse_kubeconfig("a: b\nc: [s3cret\n");
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().what, HasSubstr("not YAML at line 3"));
  EXPECT_THAT(broken.error().what, Not(HasSubstr("s3cret")));
}

TEST(Kubeconfig, IsReadUpToOneMebibyte) {
  const auto of_size = [](std::size_t size) {
    const auto text = config_with("{server: \"https://h\"}", "{token: t}");
    return parse_kubeconfig(text + "#" + std::string(size - text.size() - 1, 'x')).has_value();
  };
  EXPECT_TRUE(of_size(1U << 20U));
  EXPECT_FALSE(of_size((1U << 20U) + 1));
  const auto server = [](std::size_t size) {
    return parse_kubeconfig(config_with("{server: \"https://" + std::string(size - 8, 'h') + "\"}", "{token: t}"))
        .has_value();
  };
  EXPECT_TRUE(server(512));
  EXPECT_FALSE(server(513));
}

TEST(Kubeconfig, AnEntryWithoutContentsIsEmpty) {
  for (const std::string user : {"{}", "", "null"}) {
    const auto config = parse_kubeconfig(config_with("{server: \"https://h\"}", user));
    ASSERT_TRUE(config) << user << ": " << config.error().what;
    EXPECT_TRUE(config->token.empty());
  }
  EXPECT_THAT(parse_kubeconfig(config_with("{server: \"https://h\"}", "[]")).error().what,
              HasSubstr("users.user: expected a map"));
}

TEST(Kubeconfig, JsonIsYamlToo) {
  const auto config = parse_kubeconfig(
      R"({"current-context":"a","contexts":[{"name":"a","context":{"cluster":"b","user":"c"}}],)"
      R"("clusters":[{"name":"b","cluster":{"server":"https://h"}}],"users":[{"name":"c","user":{"token":"t"}}]})");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->token.bytes, "t");
}

TEST(Kubeconfig, TheTokenFileTakesPrecedenceOverAnInlineToken) {
  const auto config = parse_kubeconfig(config_with("{server: \"https://h\"}", "{token: old, tokenFile: /t}"));
  ASSERT_TRUE(config);
  EXPECT_EQ(config->token.file, "/t");
  EXPECT_EQ(config->token.bytes, "");
}

TEST(Kubeconfig, UnsupportedFieldsAreRefusedByName) {
  const auto what = [](const std::string& cluster, const std::string& user) {
    const auto config = parse_kubeconfig(config_with(cluster, user));
    return config ? std::string("accepted") : config.error().what;
  };
  const std::string good = "{server: \"https://h\"}";
  EXPECT_THAT(what("{server: \"http://h\"}", "{}"), HasSubstr("cluster.server"));
  EXPECT_THAT(what("{server: \"https://h\", insecure-skip-tls-verify: true}", "{}"), HasSubstr("insecure"));
  EXPECT_THAT(what("{server: \"https://h\", proxy-url: \"http://p\"}", "{}"), HasSubstr("proxy-url"));
  EXPECT_THAT(what(good, "{exec: {command: x}}"), HasSubstr("user.exec.apiVersion"));
  EXPECT_THAT(what(good, "{exec: x}"), HasSubstr("user.exec"));
  EXPECT_THAT(what(good, "{auth-provider: {name: x}}"), HasSubstr("user.auth-provider"));
  EXPECT_THAT(what(good, "{username: x}"), HasSubstr("user.username"));
  EXPECT_THAT(what(good, "{as: root}"), HasSubstr("user.as"));
  EXPECT_THAT(what(good, "{client-certificate: x}"), HasSubstr("must be set together"));
  EXPECT_THAT(what(good, "{client-key-data: \"%%\", client-certificate: x}"), HasSubstr("client-key-data"));
  EXPECT_EQ(what(good, "{}"), "accepted");
}

TEST(Kubeconfig, ErrorsDoNotQuoteCredentials) {
  const auto broken = parse_kubeconfig(config_with("{server: \"https://h\"}", "{token: \"s3cret, x"));
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::kInvalidArgument);
  EXPECT_THAT(broken.error().what, Not(HasSubstr("s3cret")));
}

TEST(Kubeconfig, AnotherContextMayBeNamed) {
  const std::vector<KubeconfigText> files{
      {"current-context: a\ncontexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, "
       "user: "
       "u}}]\nclusters: [{name: a, cluster: {server: \"https://a\"}}, {name: b, cluster: {server: \"https://b\"}}]\n"
       "users: [{name: u, user: {token: t}}]",
       "config"}};
  EXPECT_EQ(merge_kubeconfigs(files)->server, "https://a");
  EXPECT_EQ(merge_kubeconfigs(files, "b")->server, "https://b");
  EXPECT_THAT(merge_kubeconfigs(files, "c").error().what, HasSubstr("c"));
}

TEST(Kubeconfig, TextThatIsNotAKubeconfigIsAnError) {
  for (const std::string text : {"", "[]", "a", "{", "current-context: [a]", "current-context: x\ncontexts: 3"}) {
    EXPECT_FALSE(parse_kubeconfig(text)) << text;
  }
}

TEST(Kubeconfig, TheFirstFileThatDefinesANameCountsAndEntriesAreNotCombined) {
  const std::vector<KubeconfigText> files{
      {"contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {tokenFile: t}}]",
       "/one/config"},
      {"", "/empty"},
      {"current-context: x\ncontexts: [{name: x, context: {cluster: no, user: no}}]\n"
       "clusters: [{name: c, cluster: {server: \"https://two\", certificate-authority: ca}}]\n"
       "users: [{name: u, user: {client-certificate: no, client-key: no}}]",
       "two"},
      {"current-context: y\nclusters: [{name: c, cluster: {server: \"https://three\"}}]", "/three/config"}};
  const auto config = merge_kubeconfigs(files);
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->server, "https://two");
  EXPECT_EQ(config->authority.file, "ca") << "relative to the working directory, like the file";
  EXPECT_EQ(config->token.file, "/one/t");
  EXPECT_TRUE(config->certificate.empty()) << "the second user u is ignored";
}

TEST(Kubeconfig, AnErrorNamesItsFile) {
  const auto what = [](const std::string& first, const std::string& second) {
    const std::vector<KubeconfigText> files{{first, "/one"}, {second, "/two"}};
    const auto config = merge_kubeconfigs(files);
    return config ? std::string("accepted") : config.error().what;
  };
  const std::string context = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]";
  const std::string cluster = "clusters: [{name: c, cluster: {server: \"https://h\"}}]\n";
  EXPECT_THAT(what(context, cluster + "users: [{name: u, user: {token: t}}]"), HasSubstr("accepted"));
  EXPECT_THAT(what(context, "clusters: [{name: c, cluster: {server: h}}]"),
              HasSubstr("/two: kubeconfig: cluster.server"));
  EXPECT_THAT(what(context, cluster + "users: [{name: u, user: {as: root}}]"), HasSubstr("/two: kubeconfig: user.as"));
  EXPECT_THAT(what(context, cluster), HasSubstr("/one:/two: kubeconfig: users: no entry has the name \"u\""));
  EXPECT_THAT(what(cluster, "{"), HasSubstr("/two: kubeconfig: not YAML"));
  EXPECT_THAT(what("", ""), HasSubstr("current-context"));
  EXPECT_THAT(merge_kubeconfigs({}).error().what, HasSubstr("current-context"));
}

TEST(Kubeconfig, AListHasEachFileOnce) {
  EXPECT_THAT(kubeconfig_list("a:/b c::a:"), ElementsAre("a", "/b c"));
  EXPECT_THAT(kubeconfig_list(":"), IsEmpty());
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
