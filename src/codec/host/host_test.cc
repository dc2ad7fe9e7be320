#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/host/cdi_spec.h"
#include "codec/host/engine_config.h"
#include "codec/host/injection.h"

namespace carve::codec {
namespace {

using testing::ElementsAre;

TEST(CdiSpec, JsonAndYamlGiveTheSameResult) {
  const auto from_json = parse_cdi_spec(
      R"({"cdiVersion":"0.3.0","kind":"v/c","containerEdits":{"mounts":[{"hostPath":"/m","containerPath":"/x"}]},
          "devices":[{"name":"d","containerEdits":{"deviceNodes":[
              {"path":"/dev/a"},{"path":"/dev/b","hostPath":"/dev/c"}]}}]})");
  const auto from_yaml = parse_cdi_spec(
      "cdiVersion: 0.3.0\nkind: v/c\ncontainerEdits:\n  mounts:\n  - {hostPath: /m, containerPath: "
      "/x}\ndevices:\n"
      "- name: d\n  containerEdits:\n    deviceNodes:\n    - path: /dev/a\n    - path: /dev/b\n    "
      "  hostPath: /dev/c\n");
  for (const auto& spec : {from_json, from_yaml}) {
    ASSERT_TRUE(spec) << spec.error().what;
    EXPECT_EQ(spec->version, "0.3.0");
    EXPECT_EQ(spec->kind, "v/c");
    EXPECT_THAT(spec->devices, ElementsAre("d"));
    EXPECT_THAT(spec->host_paths, ElementsAre("/m", "/dev/a", "/dev/c"));
  }
}

TEST(CdiSpec, TheHostPathsIncludeHooks) {
  const auto spec = parse_cdi_spec(
      R"({"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"d","containerEdits":{"hooks":[
          {"hookName":"createContainer","path":"/lib/hook","args":["hook"]}]}}]})");
  ASSERT_TRUE(spec) << spec.error().what;
  EXPECT_THAT(spec->host_paths, ElementsAre("/lib/hook"));
}

TEST(CdiSpec, TextThatIsNotACdiSpecIsAnError) {
  for (const char* text : {"", "[]", "{", "kind: a/b", "devices: []",
                           "{\"kind\": [1], \"devices\": {}}", "{kind: a/b, devices: {}}", "a: [", "\t- x"}) {
    EXPECT_FALSE(parse_cdi_spec(text)) << text;
  }
}

TEST(EngineConfig, ReadsDockersFileAndRefusesOtherText) {
  const auto config = parse_docker_config(
      R"({"default-runtime":"nvidia","runtimes":{"nvidia":{"path":"x"}},"features":{"cdi":true}})");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->default_runtime, "nvidia");
  EXPECT_THAT(config->runtimes, ElementsAre("nvidia"));
  EXPECT_EQ(config->cdi, true);
  EXPECT_FALSE(parse_docker_config("[]"));
  EXPECT_FALSE(parse_docker_config("{"));
  EXPECT_EQ(parse_docker_config("{}")->cdi, std::nullopt);
}

TEST(CdiSpec, IsReadUpToOneMebibyte) {
  const std::string spec = R"({"cdiVersion":"0.3.0","kind":"v/c","devices":[]})";
  EXPECT_TRUE(parse_cdi_spec(spec + std::string((1U << 20U) - spec.size(), ' ')));
  EXPECT_FALSE(parse_cdi_spec(spec + std::string((1U << 20U) - spec.size() + 1, ' ')));
}

TEST(EngineConfig, TomlStringsEndAtTheirQuoteAndCommentsAreSkipped) {
  const auto settings = toml_settings("a = \"x # y\" # z\nb='q'\nc = \"open\nd = 1 # two\ne=\n= f\nlast = 'end'");
  EXPECT_EQ(settings,
            (std::map<std::string, std::string>{
                {"a", "x # y"}, {"b", "q"}, {"c", "open"}, {"d", "1"}, {"e", ""}, {"", "f"}, {"last", "end"}}));
}

TEST(EngineConfig, ReadsTomlLines) {
  const auto settings = toml_settings(
      "# x = 1\n  # y = 1\n  [z=1]\n[plugins]\n  enable_cdi = false # why\n default_runtime_name = "
      "\"nvidia\"\r\ncdi_spec_dirs = ['/etc/cdi']\nodd\n");
  EXPECT_EQ(settings.at("enable_cdi"), "false");
  EXPECT_EQ(settings.at("default_runtime_name"), "nvidia");
  EXPECT_EQ(settings.at("cdi_spec_dirs"), "['/etc/cdi']");
  EXPECT_EQ(settings.size(), 3U);
}

TEST(EngineConfig, OnlyInstalledPackagesCount) {
  const auto packages = installed_packages(
      "Package: a\nStatus: install ok installed\nVersion: 1\n\nPackage: b\nStatus: deinstall ok "
      "config-files\nVersion: 2\n");
  EXPECT_EQ(packages, (std::map<std::string, std::string>{{"a", "1"}}));
  EXPECT_EQ(installed_packages("Package: a\nStatus: install ok installed\n\nPackage: b\nVersion: 2\n"),
            (std::map<std::string, std::string>()))
      << "the state of a package does not apply to the next one";
  EXPECT_EQ(installed_packages("Status: install ok installed\nVersion: 2\n"), (std::map<std::string, std::string>()));
}

TEST(Injection, OneDeviceBecomesDockerArguments) {
  const auto injection = parse_injection(
      R"({"cdiVersion":"0.3.0","kind":"k/c","devices":[{"name":"d","containerEdits":{"env":["A=b"],
          "deviceNodes":[{"path":"/dev/nvidia0"}],"mounts":[
          {"hostPath":"/h","containerPath":"/c","options":["ro","rbind"]},
          {"hostPath":"/w","containerPath":"/w","options":["rbind"]}]}}]})");
  ASSERT_TRUE(injection) << injection.error().what;
  const auto arguments = docker_arguments(*injection);
  ASSERT_TRUE(arguments);
  EXPECT_THAT(*arguments, ElementsAre("--env=A=b", "--device=/dev/nvidia0",
                                      "--mount=type=bind,source=/h,target=/c,readonly",
                                      "--mount=type=bind,source=/w,target=/w"));
}

TEST(Injection, CommonEditsComeFirst) {
  const auto injection = parse_injection(
      R"({"containerEdits":{"env":["A=1"],"mounts":[{"hostPath":"/a","containerPath":"/b"}]},"devices":[)"
      R"({"containerEdits":{"env":["B=2"]}},{"containerEdits":{"env":["C=3"]}}]})");
  ASSERT_TRUE(injection) << injection.error().what;
  EXPECT_THAT(*docker_arguments(*injection),
              ElementsAre("--env=A=1", "--env=B=2", "--mount=type=bind,source=/a,target=/b"));
  EXPECT_FALSE(parse_injection(R"({"containerEdits":{"intelRdt":{}},"devices":[{"containerEdits":{}}]})"));
  EXPECT_FALSE(parse_injection(R"({"devices":[{"containerEdits":3}]})"));
  EXPECT_FALSE(docker_arguments({{}, {}, {{"/a", "/c\n", true}}}));
  EXPECT_FALSE(docker_arguments({{}, {"/dev/a,b"}, {}}));
}

TEST(Injection, EditsThatNoOtherFormCanExpressAreRefused) {
  const char* group = R"({"devices":[{"name":"d","containerEdits":{"additionalGids":[1]}}]})";
  EXPECT_FALSE(parse_injection(group));
  const char* hook = R"({"devices":[{"name":"d","containerEdits":{"env":["A=1"],"hooks":[{"path":"/h"}]}}]})";
  EXPECT_THAT(*docker_arguments(*parse_injection(hook)), ElementsAre("--env=A=1")) << "the hook is not needed";
  for (const char* text : {"", "{}", "[]", R"({"devices":[]})", R"({"devices":[{}]})"})
    EXPECT_FALSE(parse_injection(text)) << text;
  EXPECT_FALSE(docker_arguments({{}, {}, {{"/a,b", "/c", true}}}));
  EXPECT_FALSE(docker_arguments({{}, {""}, {}}));
}

TEST(Injection, WholeCardsBecomeVariablesOfNvidiasRuntime) {
  EXPECT_THAT(nvidia_environment({"GPU-1", "GPU-2"}),
              ElementsAre("NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2",
                          "NVIDIA_DRIVER_CAPABILITIES=compute,utility"));
}

TEST(EngineConfig, DockersFileIsReadUpToThirtyTwoLevelsDeep) {
  const auto deep = [](std::size_t depth) {
    return R"({"default-runtime":"x","y":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(parse_docker_config(deep(32)));
  EXPECT_FALSE(parse_docker_config(deep(33)));
  EXPECT_EQ(parse_docker_config(R"({"features":{"cdi":false}})")->cdi, false);
  EXPECT_EQ(parse_docker_config(R"({"features":{"cdi":"true"}})")->cdi, std::nullopt);
  EXPECT_TRUE(parse_docker_config(R"({"runtimes":[]})")->runtimes.empty());
}

}  // namespace
}  // namespace carve::codec
