#include "codec/manifest/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codec/manifest/yaml_tree.h"

namespace carve::codec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = Remark::Kind;

std::vector<std::string> said(const ReadManifest& read, Kind kind) {
  std::vector<std::string> all;
  for (const auto& one : read.remarks) {
    if (one.kind == kind) all.push_back(fmt::format("{} {}: {}", one.line, one.object, one.what));
  }
  return all;
}

ReadManifest repaired(std::string_view text, std::optional<Spelling> to = {}) {
  auto read = read_manifest(text, {{}, to});
  const auto again = read_manifest(read.text, {});
  EXPECT_EQ(again.text, read.text) << "what is repaired stays repaired";
  EXPECT_THAT(said(again, Kind::kRepaired), IsEmpty());
  return read;
}

constexpr std::string_view kOldDeployment = R"(# Source: chart/templates/web.yaml
apiVersion: extensions/v1beta1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  rollbackTo: {revision: 1}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: c
        image: example.com/cuda:12
        resources:
          limits: {aliyun.com/gpu-mem: 2}
)";

TEST(Manifest, APastVersionIsReplacedAndTheSelectorFollowsFromTheTemplate) {
  const auto read = repaired(kOldDeployment);
  EXPECT_THAT(said(read, Kind::kRepaired),
              ElementsAre("2 Deployment web: extensions/v1beta1 Deployment was removed in Kubernetes 1.16; now apps/v1",
                          "6 Deployment web: spec.rollbackTo is removed: apps/v1 has no such field",
                          "6 Deployment web: spec.selector is missing; added the labels of the pod template"));
  EXPECT_THAT(said(read, Kind::kReads), ElementsAre("14 Deployment web: container c: gpushare: 2 GiB, besteffort"));
  EXPECT_EQ(read.text, R"(# Source: chart/templates/web.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
        - name: c
          image: "example.com/cuda:12"
          resources:
            limits:
              aliyun.com/gpu-mem: 2
  selector:
    matchLabels:
      app: web
)");
}

TEST(Manifest, ATemplateWithoutLabelsGetsOne) {
  const auto read = repaired(
      "apiVersion: apps/v1beta1\nkind: StatefulSet\nmetadata: {name: db}\n"
      "spec: {template: {spec: {containers: [{name: c, image: i}]}}}\n");
  EXPECT_THAT(said(read, Kind::kRepaired), Contains(HasSubstr("the pod template has no label; added app: db")));
  EXPECT_THAT(read.text, HasSubstr("selector:\n    matchLabels:\n      app: db\n"));
}

TEST(Manifest, OtherDocumentsStayAsTheyAreByteForByte) {
  const std::string other =
      "# a comment\nkind:   ConfigMap # odd  spacing\napiVersion: v1\ndata: {a: 'b',  c: \"d\"}\n";
  const auto read = repaired(other + "---\n" + std::string(kOldDeployment) + "--- # end\n" + other);
  EXPECT_THAT(read.text, testing::StartsWith(other + "---\n# Source"));
  EXPECT_THAT(read.text, testing::EndsWith("--- # end\n" + other));
  for (const std::string same :
       {"", "\n\n", "---\n", "# only a comment\n", "a: b", "- x\n- y\n", "{\"kind\": \"Pod\"}", "\r\n---\r\n"})
    EXPECT_EQ(repaired(same).text, same);
}

TEST(Manifest, ItemsOfAListAreMendedToo) {
  const auto read = repaired(
      "apiVersion: v1\nkind: List\nitems:\n- apiVersion: batch/v1beta1\n  kind: CronJob\n"
      "  metadata: {name: night}\n  spec: {schedule: \"0 1 * * *\"}\n");
  EXPECT_THAT(said(read, Kind::kRepaired),
              ElementsAre("4 CronJob night: batch/v1beta1 CronJob was removed in Kubernetes 1.25; now batch/v1"));
  EXPECT_THAT(read.text, HasSubstr("schedule: \"0 1 * * *\""));
}

TEST(Manifest, EachContainerOfEachItemIsReadOnce) {
  std::string text = "apiVersion: v1\nkind: List\nitems:\n";
  for (const std::string name : {"p1", "p2"}) {
    text += "- apiVersion: v1\n  kind: Pod\n  metadata: {name: " + name + "}\n  spec:\n    containers:\n";
    for (const std::string container : {"a", "b"}) {
      text += "    - name: " + container + "\n      resources: {limits: {aliyun.com/gpu-mem: 2}}\n";
    }
  }
  EXPECT_EQ(said(read_manifest(text, {}), Kind::kReads).size(), 4U);
}

TEST(Manifest, WhatOnlyItsAuthorCanRewriteIsReportedAndStays) {
  const std::string ingress = "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: i}\nspec: {}\n";
  const auto read = repaired(ingress);
  EXPECT_EQ(read.text, ingress);
  EXPECT_THAT(said(read, Kind::kWrong),
              ElementsAre("1 Ingress i: extensions/v1beta1 Ingress was removed in Kubernetes 1.22, and its fields "
                          "changed: rewrite it"));
}

TEST(Manifest, ABrokenSampleIsMendedAndItsLinesAreNamed) {
  const auto read = repaired(R"(apiVersion: v1
kind: Pod
metadata: test-cuda-1
annotations:
  egpuc.elasticgpu.io/test1: claim
  weight: 60
spec:
  containers:
  - name: test-cuda
    image: i
    resources:
      requests:
        elasticgpu.io/gpu-core: 10 // ten percent
        elasticgpu.io/gpu-memory: 4096
)");
  EXPECT_THAT(
      said(read, Kind::kRepaired),
      ElementsAre("3 Pod test-cuda-1: metadata is the text \"test-cuda-1\"; now it is metadata.name",
                  "3 Pod test-cuda-1: annotation weight: 60 is not text; now \"60\"",
                  "4 Pod test-cuda-1: annotations is beside metadata; now it is metadata.annotations",
                  "13 Pod test-cuda-1: text after // is removed: comments in YAML begin with #",
                  "13 Pod test-cuda-1: container test-cuda: elasticgpu.io/gpu-core is only in requests; added "
                  "to limits",
                  "14 Pod test-cuda-1: container test-cuda: elasticgpu.io/gpu-memory is only in requests; added "
                  "to limits"));
  EXPECT_THAT(said(read, Kind::kWrong),
              ElementsAre("3 Pod test-cuda-1: annotation egpuc.elasticgpu.io/test1: there is no container test1; this "
                          "pod has test-cuda"));
  EXPECT_THAT(said(read, Kind::kReads),
              ElementsAre(HasSubstr("container test-cuda: native: 4 GiB, compute 10, burst")));
}

TEST(Manifest, AVariableThatExemptedFromCgpusLimitsIsRemoved) {
  const auto read = repaired(R"(apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    env:
    - {name: CGPU_DISABLE, value: "true"}
    - {name: KEPT, value: "1"}
    resources:
      limits: {aliyun.com/gpu-mem: 2}
)");
  EXPECT_THAT(said(read, Kind::kRepaired),
              ElementsAre("8 Pod p: variable CGPU_DISABLE is removed: Carve's limits have no exemption"));
  EXPECT_THAT(read.text, AllOf(Not(HasSubstr("CGPU_DISABLE")), HasSubstr("KEPT")));
}

TEST(Manifest, ClaimsAreReadAsControlReadsThem) {
  const auto read = repaired(
      "apiVersion: elasticgpu.io/v1alpha\nkind: ElasticGPUClaim\nmetadata: {name: k}\nspec:\n"
      "  storageClassName: c\n  resources:\n    requests:\n"
      "      tke.cloud.tencent.com/qgpu-core: 10  // of 100\n"
      "      tke.cloud.tencent.com/qgpu-memory: 4GB\n");
  EXPECT_THAT(said(read, Kind::kReads), ElementsAre(HasSubstr("class c: 4 GiB, compute 10")));
  EXPECT_THAT(said(read, Kind::kRepaired), ElementsAre(HasSubstr("text after // is removed")));
  EXPECT_THAT(said(repaired("apiVersion: elasticgpu.io/v1alpha1\nkind: ElasticGPUClass\nmetadata: {name: c}\n"
                            "provisioner: x\nreclaimPolicy: Keep\n"),
                   Kind::kWrong),
              Contains(HasSubstr("Keep")));
}

TEST(Manifest, TextThatIsNoYamlIsAFindingWithItsLine) {
  EXPECT_THAT(said(repaired("a: b\n---\nkind: Pod\nspec: [\n"), Kind::kWrong),
              ElementsAre(testing::StartsWith("5 : not YAML: ")));
  EXPECT_THAT(said(repaired(std::string(2000, '[')), Kind::kWrong), Not(IsEmpty()));
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    laughs += fmt::format("a{0}: &a{0} [", i);
    for (int k = 0; k < 10; ++k) laughs += fmt::format("*a{}, ", i - 1);
    laughs += "]\n";
  }
  EXPECT_THAT(said(repaired(laughs), Kind::kWrong), ElementsAre(HasSubstr("more than 100000 values")));
  EXPECT_THAT(said(repaired("kind: Pod\nkind: Job\n"), Kind::kWrong), ElementsAre(HasSubstr("/kind is set twice")));
}

constexpr std::string_view kPod = R"(apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml}
spec:
  containers:
  - name: c
    image: i
    resources:
      limits: LIMITS
)";

std::string pod_with(const std::string& limits, const std::string& metadata = "") {
  std::string text(kPod);
  text.replace(text.find("LIMITS"), 6, limits);
  if (!metadata.empty()) text.replace(text.find("namespace: ml"), 13, "namespace: ml, " + metadata);
  return text;
}

TEST(Manifest, CommentsBeforeAChangedDocumentStay) {
  const std::string head = "  # indented\n\n# at the margin\n";
  const auto read = repaired(head + pod_with("{tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 16}"),
                             Spelling::kNative);
  EXPECT_THAT(read.text, testing::StartsWith(head + "apiVersion: v1\n"));
  EXPECT_THAT(read.text, HasSubstr("elasticgpu.io/gpu-core: 30\n"));
}

TEST(Manifest, RequestsAreRewrittenInTheNativeSpelling) {
  const auto read =
      repaired(pod_with("{tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 16, cpu: 0.5}"), Spelling::kNative);
  EXPECT_THAT(read.text,
              HasSubstr("cpu: 0.5\n          elasticgpu.io/gpu-memory: 4096\n          elasticgpu.io/gpu-core: 30\n"));
  EXPECT_THAT(read.text, HasSubstr("elasticgpu.io/share-class: fixed\n"));
  EXPECT_THAT(said(read, Kind::kReads), ElementsAre("6 Pod p: container c: native: 4 GiB, compute 30, fixed"))
      << "the same as before";
  EXPECT_THAT(repaired(pod_with("{aliyun.com/gpu-mem: 2}"), Spelling::kNative).text, Not(HasSubstr("share-class")));
  EXPECT_THAT(repaired(pod_with("{tke.cloud.tencent.com/qgpu-core: 200}"), Spelling::kNative).text,
              HasSubstr("elasticgpu.io/gpu: 2\n"));
  const auto own = pod_with("{elasticgpu.io/gpu-core: 10}");
  EXPECT_EQ(repaired(own, Spelling::kNative).text, own);
  const auto both =
      repaired(pod_with("{elasticgpu.io/gpu-core: 10, elasticgpu.io/gpu-memory: 1024}"), Spelling::kNative);
  EXPECT_THAT(said(both, Kind::kRepaired), IsEmpty()) << "it is in that spelling";
}

TEST(Manifest, ARequestThatTheNewSpellingCannotSayStays) {
  const auto policy = pod_with("{aliyun.com/gpu-mem: 2, aliyun.com/gpu-core.percentage: 30}");
  const auto read = repaired(policy, Spelling::kNative);
  EXPECT_EQ(read.text, policy);
  EXPECT_THAT(said(read, Kind::kWrong), ElementsAre(HasSubstr("its share follows the node's policy for cgpu")));
  const auto burst = pod_with("{elasticgpu.io/gpu-core: 10, elasticgpu.io/gpu-memory: 1024}");
  EXPECT_EQ(repaired(burst, Spelling::kClaim).text, burst);
  EXPECT_THAT(said(repaired(burst, Spelling::kClaim), Kind::kWrong), ElementsAre(HasSubstr("share class burst")));
  EXPECT_THAT(said(read_manifest(kOldDeployment, {{}, Spelling::kClaim}), Kind::kWrong),
              ElementsAre(HasSubstr("spec.replicas is 2")));
}

TEST(Manifest, WhatAClaimCannotPromiseStays) {
  const std::string amounts = "{elasticgpu.io/gpu-core: 10, elasticgpu.io/gpu-memory: 1024}";
  const auto refused = [](const std::string& text) {
    const auto read = repaired(text, Spelling::kClaim);
    EXPECT_EQ(read.text, text);
    const auto wrong = said(read, Kind::kWrong);
    return wrong.empty() ? std::string() : wrong[0];
  };
  EXPECT_THAT(refused(pod_with(amounts, "annotations: {elasticgpu.io/share-class: besteffort, "
                                        "elasticgpu.io/priority-class: online}")),
              HasSubstr("container c: claims have no priority class"));
  EXPECT_THAT(refused(pod_with(amounts, "annotations: {elasticgpu.io/share-class: besteffort, "
                                        "elasticgpu.io/core-limit: \"60\"}")),
              HasSubstr("container c: claims have no limit of compute beyond their cores"));
}

TEST(Manifest, APriorityClassIsKeptInTheNativeSpelling) {
  const auto read = repaired(pod_with("{tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 16}",
                                      "annotations: {elasticgpu.io/priority-class: offline}"),
                             Spelling::kNative);
  EXPECT_THAT(read.text, HasSubstr("elasticgpu.io/priority-class: offline\n"));
  EXPECT_THAT(read.text, HasSubstr("elasticgpu.io/gpu-core: 30\n"));
  ManifestRules hami{{}, Spelling::kNative};
  hami.dialects.hami = true;
  hami.dialects.nvidia_by_slots = true;
  const auto of_hami = read_manifest(
      pod_with("{nvidia.com/gpu: 1, nvidia.com/gpumem: 1024, nvidia.com/priority: 0}"), hami);
  EXPECT_THAT(of_hami.text, HasSubstr("elasticgpu.io/priority-class: online\n"));
  EXPECT_THAT(of_hami.text, HasSubstr("elasticgpu.io/gpu-memory: 1024\n"));
}

TEST(Manifest, AHelmTemplateIsNamedAsOne) {
  EXPECT_THAT(said(repaired("kind: Pod\nmetadata: {name: {{ .Values.name }}}\n"), Kind::kWrong),
              Contains(HasSubstr("of a Helm chart, read the output of `helm template`")));
  EXPECT_THAT(said(repaired("kind: Pod\nspec: [\n"), Kind::kWrong), Contains(Not(HasSubstr("Helm"))));
}

TEST(Manifest, SpellingsHaveNames) {
  EXPECT_EQ(spelling_from("native"), Spelling::kNative);
  EXPECT_EQ(spelling_from("dra"), Spelling::kDra);
  EXPECT_EQ(spelling_from("claim"), Spelling::kClaim);
  EXPECT_EQ(spelling_from(""), std::nullopt);
}

TEST(Manifest, SlotsAreRemovedAndLabelsThatAreNoTextAreNamed) {
  const auto read = repaired(pod_with("{elasticgpu.io/gpu-core: 10, elasticgpu.io/slot: 1}", "labels: {a: [b], c: 1}"));
  EXPECT_THAT(said(read, Kind::kRepaired), Contains(HasSubstr("elasticgpu.io/slot is removed from limits")));
  EXPECT_THAT(said(read, Kind::kWrong), Contains(HasSubstr("label a: a list or a mapping; text is legal")));
  EXPECT_THAT(read.text, Not(HasSubstr("elasticgpu.io/slot")));
}

TEST(Manifest, ACoreLimitIsKeptInTheOtherSpellings) {
  const auto soft = pod_with("{tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 16}",
                             "annotations: {tencent.com/vcuda-core-limit: \"60\"}");
  const auto native = repaired(soft, Spelling::kNative);
  EXPECT_THAT(native.text, HasSubstr("elasticgpu.io/core-limit: \"60\""));
  EXPECT_THAT(native.text, Not(HasSubstr("share-class")));
  EXPECT_THAT(said(native, Kind::kReads), ElementsAre(HasSubstr("native: 4 GiB, compute 30 to 60, burst")));
  EXPECT_THAT(repaired(soft, Spelling::kDra).text, HasSubstr("coreLimit: 60"));
}

TEST(Manifest, AClaimMayBeForSeveralCards) {
  const auto read = repaired(pod_with("{elasticgpu.io/gpu: 2}"), Spelling::kClaim);
  EXPECT_THAT(read.text, HasSubstr("provisioner: elasticgpu.io/physical"));
  EXPECT_THAT(read.text, HasSubstr("elasticgpu.io/gpu: 2\n"));
}

TEST(Manifest, RequestsBecomeElasticGpuClaims) {
  const auto read = repaired(pod_with("{tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 16}"), Spelling::kClaim);
  EXPECT_THAT(read.text, testing::StartsWith(R"(apiVersion: elasticgpu.io/v1alpha1
kind: ElasticGPUClass
metadata:
  name: carve-vcuda
provisioner: elasticgpu.io/vcuda
---
apiVersion: elasticgpu.io/v1alpha1
kind: ElasticGPUClaim
metadata:
  name: p-c
  namespace: ml
spec:
  elasticGPUClassName: carve-vcuda
  resources:
    requests:
      elasticgpu.io/gpu-memory: 4096
      elasticgpu.io/gpu-core: 30
---
)"));
  EXPECT_THAT(read.text, HasSubstr("egpuc.elasticgpu.io/c: p-c\n"));
  EXPECT_THAT(read.text, Not(HasSubstr("vcuda-core")));
}

TEST(Manifest, RequestsBecomeResourceClaimTemplates) {
  const auto read = repaired(pod_with("{volcano.sh/gpu-memory: 1024}"), Spelling::kDra);
  EXPECT_THAT(read.text, testing::StartsWith(R"(apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: p-c
  namespace: ml
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.elasticgpu.io
            capacity:
              requests:
                memory: "1024Mi"
                cores: "1"
      config:
        - requests:
            - gpu
          opaque:
            driver: gpu.elasticgpu.io
            parameters:
              apiVersion: gpu.elasticgpu.io/v1
              kind: ShareConfig
              shareClass: besteffort
              priorityClass: standard
---
)"));
  EXPECT_THAT(read.text, HasSubstr("        claims:\n          - name: c\n"));
  EXPECT_THAT(read.text, HasSubstr("resourceClaims:\n    - name: c\n      resourceClaimTemplateName: p-c\n"));
}

TEST(Manifest, OnlyKubernetesOwnObjectsGetASelector) {
  const std::string rest = "kind: Deployment\nmetadata: {name: d}\n";
  const std::string spec = "spec:\n  template:\n    metadata: {labels: {app: d}}\n    spec: {containers: []}\n";
  const auto others = "apiVersion: example.com/v1\n" + rest + spec;
  EXPECT_EQ(repaired(others).text, others);
  EXPECT_THAT(repaired("apiVersion: apps/v1\n" + rest + spec).text, HasSubstr("selector:\n    matchLabels:\n"));
  for (const std::string kind : {"DaemonSet", "ReplicaSet", "StatefulSet"}) {
    const auto other = "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {name: d}\n" + spec;
    EXPECT_THAT(repaired(other).text, HasSubstr("selector:\n    matchLabels:\n")) << kind;
  }
  const auto unknown = "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: d}\n" + spec;
  EXPECT_EQ(repaired(unknown).text, unknown);
  const auto empty = "apiVersion: apps/v1\n" + rest;
  EXPECT_EQ(repaired(empty).text, empty) << "without a spec";
}

TEST(YamlTree, CommentsOfOtherLanguagesAreRemovedFromCarvesObjects) {
  for (const std::string version : {"elasticgpu.io/v1alpha1", "apps/v1"}) {
    const auto tree = parse_yaml("apiVersion: " + version + "\nspec:\n  class: fast // the new one\n");
    ASSERT_TRUE(tree);
    const bool own = version != "apps/v1";
    EXPECT_EQ(tree->value.at("spec").at("class"), own ? "fast" : "fast // the new one");
    EXPECT_EQ(tree->commented.size(), own ? 1U : 0U);
  }
}

TEST(YamlTree, WordsAreTypedAsKubectlDoesIt) {
  const auto tree = parse_yaml(
      "{a: yes, b: 0644, c: '1', d: 1.5, e: ~, f: 1e3, g: 0x10, h: -7, i: 4Gi, j: 1.2.3, k: .5, "
      "l: 18446744073709551615, m: 99999999999999999999, n: \"on\", o: 08, p: +2.5, q: +3, r: 1., "
      "s: -9223372036854775807}");
  ASSERT_TRUE(tree) << tree.error().what;
  EXPECT_EQ(boost::json::serialize(tree->value),
            R"({"a":true,"b":420,"c":"1","d":1.5E0,"e":null,"f":1E3,"g":16,"h":-7,"i":"4Gi","j":"1.2.3","k":5E-1,)"
            R"("l":18446744073709551615,"m":"99999999999999999999","n":"on","o":"08","p":2.5E0,"q":3,"r":1E0,)"
            R"("s":-9223372036854775807})");
  const auto again = parse_yaml(yaml_text(tree->value));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->value, tree->value);
  const auto merged = parse_yaml("base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}\n");
  ASSERT_TRUE(merged);
  EXPECT_EQ(boost::json::serialize(merged->value.at("own")), R"({"y":3,"x":1})");
  std::string deep = "{x: 1}";
  for (int i = 0; i < 65; ++i) deep = "{<<: " + deep + "}";
  EXPECT_FALSE(parse_yaml(deep)) << "a merged map counts as nested";
  for (const std::string text :
       {"a: b", "- x", "yes", "y", "1", "", " x", "x ", "a\nb", "ä", "#", "*a", "0x", "null"}) {
    const auto back = parse_yaml(yaml_text(boost::json::string(text)));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->value, boost::json::value(boost::json::string(text))) << text;
  }
  for (const std::string text : {"y", "Y", "n", "N"})  // booleans of YAML 1.1, which other readers still use
    EXPECT_THAT(yaml_text(boost::json::string(text)), HasSubstr('"' + text + '"'));
}

TEST(Manifest, ADocumentMustBeAnObjectOrEmpty) {
  EXPECT_THAT(said(repaired("just words\n"), Kind::kWrong), ElementsAre(HasSubstr("not a Kubernetes object")));
  EXPECT_THAT(said(repaired("null\n"), Kind::kWrong), IsEmpty());
}

TEST(Manifest, AnotherSystemsNameThatCarveDoesNotReadIsWrong) {
  const auto read = repaired("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: "
                             "{limits: {volcano.sh/gpu-cores: 5}}}]}\n");
  EXPECT_THAT(said(read, Kind::kWrong), Contains(HasSubstr("volcano.sh/gpu-cores: Carve does not read this name")));
}

/// The corpus: lint and admission must say the same.
TEST(Manifest, TheCorpusIsReadAsItIsApplied) {
  DialectSettings settings;
  settings.hami = true;
  settings.deepomatic_containers = 4;
  settings.rancher_containers = 5;
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CARVE_FIXTURES "/corpus")) {
    if (entry.path().extension() != ".yaml") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const auto read = read_manifest(text.str(), {settings});
    const auto folder = entry.path().parent_path().filename().string();
    const auto wrong = said(read, Kind::kWrong);
    const auto name = entry.path().filename().string();
    ++files;
    if (folder == "removed" || folder == "converted") {
      EXPECT_THAT(wrong, IsEmpty()) << name;
      const bool spelled = text.str().find("\n#> to ") != std::string::npos;
      if (spelled) continue;
      EXPECT_THAT(said(read, Kind::kRepaired), Not(IsEmpty())) << name;
    } else if (folder == "refused") {
      EXPECT_TRUE(!wrong.empty() || !said(read, Kind::kRepaired).empty()) << name;
      const std::string word = "#> refused ";
      const auto at = text.str().find(word);
      ASSERT_NE(at, std::string::npos) << name;
      const auto expected = text.str().substr(at + word.size(), text.str().find('\n', at) - at - word.size());
      if (!wrong.empty()) {  // admission sees amounts as the API server spells them, 5500m for 5.5
        EXPECT_THAT(wrong, Contains(HasSubstr(expected.substr(0, expected.find('"'))))) << name;
      }
    } else {
      EXPECT_THAT(wrong, IsEmpty()) << name;
      EXPECT_EQ(read.text, text.str()) << name;
    }
  }
  EXPECT_GT(files, 40);
}

}  // namespace
}  // namespace carve::codec
