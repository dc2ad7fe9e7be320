#include "codec/kubeconfig/exec_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <string>

#include "codec/kubeconfig/kubeconfig.h"

namespace carve::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

constexpr const char* kV1 = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, ";
constexpr const char* kV1Beta1 = "apiVersion: client.authentication.k8s.io/v1beta1, ";

Result<Kubeconfig> config_of(const std::string& exec, const std::string& cluster = "", const std::string& user = "") {
  const KubeconfigText file{"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                            "clusters: [{name: c, cluster: {server: \"https://h\"" + cluster + "}}]\n"
                            "users: [{name: u, user: {exec: {" + exec + "}" + user + "}}]\n",
                            "/home/a/.kube/config"};
  return merge_kubeconfigs({&file, 1});
}

std::string refusal(const std::string& exec) {
  const auto config = config_of(exec);
  return config ? "accepted" : config.error().what;
}

TEST(ExecPlugin, IsReadCompletely) {
  const auto config = config_of(std::string(kV1) +
                                "command: aws, args: [eks, \"get-token\", 7], env: [{name: A, value: b}, {name: C}], "
                                "provideClusterInfo: true, installHint: \"do \\e[1mthis\\a\\n\"");
  ASSERT_TRUE(config) << config.error().what;
  ASSERT_TRUE(config->exec);
  const auto& plugin = *config->exec;
  EXPECT_EQ(plugin.command, "aws");
  EXPECT_THAT(plugin.args, ElementsAre("eks", "get-token", "7"));
  EXPECT_THAT(plugin.environment, ElementsAre(Pair("A", "b"), Pair("C", "")));
  EXPECT_EQ(plugin.api_version, "client.authentication.k8s.io/v1");
  EXPECT_EQ(plugin.terminal, ExecPlugin::Terminal::kNever);
  EXPECT_TRUE(plugin.wants_cluster);
  EXPECT_EQ(plugin.install_hint, "do [1mthis");
}

TEST(ExecPlugin, ACommandWithASlashIsRelativeToTheKubeconfigsFolder) {
  EXPECT_EQ(config_of(std::string(kV1) + "command: bin/login")->exec->command, "/home/a/.kube/bin/login");
  EXPECT_EQ(config_of(std::string(kV1) + "command: /bin/login")->exec->command, "/bin/login");
}

TEST(ExecPlugin, TheOlderVersionHasADefaultInteractiveMode) {
  EXPECT_EQ(config_of(std::string(kV1Beta1) + "command: a")->exec->terminal, ExecPlugin::Terminal::kIfAvailable);
  EXPECT_EQ(config_of(std::string(kV1Beta1) + "command: a, interactiveMode: Always")->exec->terminal,
            ExecPlugin::Terminal::kAlways);
}

TEST(ExecPlugin, AFaultyFieldIsNamedAndNoSecretIsQuoted) {
  const std::string v1 = kV1;
  EXPECT_THAT(refusal("command: a"), HasSubstr("user.exec.apiVersion: missing"));
  EXPECT_THAT(refusal("command: a"), HasSubstr("/home/a/.kube/config"));
  EXPECT_THAT(refusal("command: a, apiVersion: client.authentication.k8s.io/v1alpha1"), HasSubstr("v1alpha1"));
  EXPECT_THAT(refusal("command: a, apiVersion: client.authentication.k8s.io/v1"),
              HasSubstr("user.exec.interactiveMode: missing (legal: Never, IfAvailable, Always)"));
  EXPECT_THAT(refusal(std::string(kV1Beta1) + "command: a, interactiveMode: Sometimes"), HasSubstr("Sometimes"));
  EXPECT_THAT(refusal(v1), HasSubstr("user.exec.command"));
  EXPECT_THAT(refusal(v1 + "command: a, args: s3cret"), HasSubstr("user.exec.args"));
  EXPECT_THAT(refusal(v1 + "command: a, args: [\"s3cret\\0\"]"), HasSubstr("user.exec.args"));
  for (const std::string env : {"s3cret", "[s3cret]", "[{value: s3cret}]", "[{name: \"a=b\", value: s3cret}]",
                                "[{name: a, value: [s3cret]}]", "[{name: a, value: \"s3cret\\0\"}]"}) {
    EXPECT_THAT(refusal(v1 + "command: a, env: " + env), HasSubstr("user.exec.env")) << env;
    EXPECT_THAT(refusal(v1 + "command: a, env: " + env), Not(HasSubstr("s3cret"))) << env;
  }
  EXPECT_THAT(refusal(v1 + "command: a, args: s3cret"), Not(HasSubstr("s3cret")));
  EXPECT_THAT(refusal(v1 + "command: a, provideClusterInfo: perhaps"), HasSubstr("user.exec.provideClusterInfo"));
  EXPECT_THAT(config_of(v1 + "command: a", "", ", auth-provider: {name: x}").error().what,
              HasSubstr("user.auth-provider"));
}

TEST(ExecPlugin, AHintIsTruncatedAndPrintable) {
  const auto hint = [](const std::string& text) {
    return config_of(std::string(kV1) + "command: a, installHint: \"" + text + "\"")->exec->install_hint;
  };
  EXPECT_EQ(hint(std::string(2001, 'x')).size(), 2000U);
  EXPECT_EQ(hint("a\\x1f\\x7f\\nb \\n \\n"), "a\nb");
  EXPECT_EQ(hint(" ~"), " ~");
}

TEST(ExecPlugin, AnExtensionIsReadUpToTheDepthAndLengthLimits) {
  const std::string asks = std::string(kV1) + "command: a, provideClusterInfo: true";
  const auto reads = [&](const std::string& value) {
    return config_of(asks, ", extensions: [{name: client.authentication.k8s.io/exec, extension: " + value + "}]")
        .has_value();
  };
  EXPECT_TRUE(reads(std::string(25, '[') + std::string(25, ']')));
  EXPECT_FALSE(reads(std::string(26, '[') + std::string(26, ']')));
  EXPECT_TRUE(reads("\"" + std::string((64U << 10U) - 2, 'x') + "\""));
  EXPECT_FALSE(reads("\"" + std::string((64U << 10U) - 1, 'x') + "\""));
  EXPECT_EQ(
      config_of(asks,
                ", extensions: [{name: client.authentication.k8s.io/exec, extension: {a: -1, b: 1e2, c: 1-2, d: \"\","
                " e: false, f: .5}}]")
          ->exec->cluster_config,
      R"({"a":-1,"b":1E2,"c":"1-2","d":"","e":false,"f":".5"})");
}

TEST(ExecPlugin, TheClustersExtensionIsJson) {
  const std::string asks = std::string(kV1) + "command: a, provideClusterInfo: true";
  const auto extension = [](const std::string& value) {
    return ", extensions: [{name: other, extension: 1}, {name: client.authentication.k8s.io/exec, extension: " + value +
           "}]";
  };
  EXPECT_EQ(config_of(asks)->exec->cluster_config, "");
  const auto config = config_of(asks, extension("{a: [1, 2.5, \"3\", true, null, word], b: {}}"));
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->exec->cluster_config, R"({"a":[1,2.5E0,"3",true,null,"word"],"b":{}})");
  EXPECT_EQ(config_of(std::string(kV1) + "command: a", extension("{a: 1}"))->exec->cluster_config, "");
  EXPECT_THAT(config_of(asks, extension(std::string(40, '[') + std::string(40, ']'))).error().what,
              HasSubstr("cluster.extensions"));
  std::string laughs = "{a: &a [x, x, x, x, x, x, x, x, x]";
  for (char c = 'b'; c < 'j'; ++c) {
    laughs += std::string(", ") + c + ": &" + c + " [";
    for (int i = 0; i < 9; ++i) laughs += std::string(i == 0 ? "*" : ", *") + static_cast<char>(c - 1);
    laughs += "]";
  }
  EXPECT_THAT(config_of(asks, extension(laughs + "}")).error().what, HasSubstr("longer than"));
}

TEST(ExecPlugin, AFaultyValueIsQuotedUpToALimit) {
  const std::string longest(200, 'z');
  const auto quoted = [](const std::string& exec) {
    const std::string what = refusal(exec);
    return std::count(what.begin(), what.end(), 'z');
  };
  EXPECT_EQ(quoted("command: a, apiVersion: " + longest), 100);
  EXPECT_EQ(quoted(std::string(kV1Beta1) + "command: a, interactiveMode: " + longest), 60);
}

TEST(ExecPlugin, AnUnquotedScalarHasItsJsonType) {
  const auto value = [](const std::string& yaml) {
    const auto config = config_of(std::string(kV1) + "command: a, provideClusterInfo: true",
                                  ", extensions: [{name: client.authentication.k8s.io/exec, extension: " + yaml + "}]");
    return config ? config->exec->cluster_config : "refused";
  };
  for (const auto& [yaml, json] : std::vector<std::pair<std::string, std::string>>{
           {"true", "true"}, {"false", "false"}, {"\"true\"", "\"true\""}, {"'1'", "\"1\""}, {"True", "\"True\""},
           {"0", "0"}, {"-12", "-12"}, {"1.5e3", "1.5E3"}, {"1+", "\"1+\""}, {"e", "\"e\""}, {"9a", "\"9a\""},
           {"[]", "[]"}, {"{}", "{}"}, {"[[1], {b: [2]}]", R"([[1],{"b":[2]}])"}, {"[~, x]", R"([null,"x"])"}})
    EXPECT_EQ(value(yaml), json) << yaml;
  EXPECT_EQ(value("{[a]: b}"), "refused") << "a key that is not a scalar";
}

TEST(ExecPlugin, TheLengthOfAnExtensionIncludesAllOfItsParts) {
  const auto reads = [](const std::string& yaml) {
    return config_of(std::string(kV1) + "command: a, provideClusterInfo: true",
                     ", extensions: [{name: client.authentication.k8s.io/exec, extension: " + yaml + "}]")
        .has_value();
  };
  constexpr std::size_t kMost = 64U << 10U;
  // Two bytes for each value, and the characters of keys and scalars.
  EXPECT_TRUE(reads("{" + std::string(100, 'k') + ": " + std::string(kMost - 104, 'v') + "}"));
  EXPECT_FALSE(reads("{" + std::string(100, 'k') + ": " + std::string(kMost - 103, 'v') + "}"));
  EXPECT_TRUE(reads("[a, " + std::string(kMost - 7, 'v') + "]"));
  EXPECT_FALSE(reads("[a, " + std::string(kMost - 6, 'v') + "]"));
  const auto deep = [](std::size_t depth) {
    std::string yaml = "1";
    for (std::size_t i = 0; i < depth; ++i) yaml = "{a: " + yaml + "}";
    return yaml;
  };
  EXPECT_TRUE(reads(deep(24)));
  EXPECT_FALSE(reads(deep(25)));
}

}  // namespace
}  // namespace carve::codec
