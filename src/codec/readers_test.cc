// Every reader on record, see base/testing/decisions.h: what it makes of a complete document, and of variants that
// differ in one place each. The tests beside each reader check rules.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/testing/decisions.h"
#include "base/testing/printed.h"
#include "codec/admission/review.h"
#include "codec/base64.h"
#include "codec/claims/elastic_objects.h"
#include "codec/cluster/budget.h"
#include "codec/cluster/cluster_node.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/cluster/installation.h"
#include "codec/cluster/lease.h"
#include "codec/cluster/notes.h"
#include "codec/dialects/pod_checks.h"
#include "codec/dra/claim.h"
#include "codec/dra/resource_slice.h"
#include "codec/dra/share_config.h"
#include "codec/extender/extender.h"
#include "codec/health/known_cards_text.h"
#include "codec/health/xid_policy_text.h"
#include "codec/history/history_segment.h"
#include "codec/host/cdi_spec.h"
#include "codec/host/engine_config.h"
#include "codec/host/injection.h"
#include "codec/journal/slice_note_text.h"
#include "codec/keeper/words.h"
#include "codec/kube/access_review.h"
#include "codec/kube/event.h"
#include "codec/kube/messages.h"
#include "codec/kubeconfig/exec_credential.h"
#include "codec/kubeconfig/kubeconfig.h"
#include "codec/kubelet/checkpoint.h"
#include "codec/kubelet/node_pod.h"
#include "codec/kubelet/runtime_config.h"
#include "codec/manifest/manifest.h"
#include "codec/node/card_modes.h"
#include "codec/node/gpu_object.h"
#include "codec/node/node_object.h"
#include "codec/node/plugin_conflict.h"
#include "codec/placement/placement_text.h"
#include "codec/record.h"
#include "codec/settings/cluster_config.h"
#include "codec/testing/variants.h"
#include "codec/views/board.h"
#include "codec/views/usage.h"
#include "codec/views/yaml.h"

namespace carve::codec {
namespace {

constexpr std::int64_t kNow = 1'767'312'000;  // 2026-01-02T00:00:00Z

std::string file(const std::string& name) {
  std::ifstream in(std::string(CARVE_FIXTURES) + "/documents/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string pod_of_cluster(const std::string& text) {
  const auto pod = parse_cluster_pod(text);
  std::string out = printed(pod);
  if (!pod) return out;
  const auto placement = placement_of(pod->ask);
  out += placement ? to_text(*placement) : placement.error().what;
  return out + binding_body(*pod, "n", {{"a", "b"}}) + annotations_patch(*pod, {{"c", "d"}}) + printed(pod->ask) +
         printed(placeholders(pod->ask)) + printed(claims_of(pod->ask));
}

std::string pod_of_node(const std::string& text) { return printed(parse_node_pod(text)); }

std::string pod_of_doctor(const std::string& text) { return printed(pod_waits(text, kNow)) + printed(is_ready(text)); }

std::string claim_uses_of_pod(const std::string& text) {
  const auto pod = parse_pod_ask(text);
  if (!pod) return printed(pod);
  std::string out = printed(requests_of(*pod, {})) + printed(claim_uses(*pod, {}));
  for (const ContainerAsk& container : pod->containers) {
    out += printed(unknown_names(container)) + printed(unread_names(container, {}));
  }
  return out;
}

std::string node(const std::string& text) {
  const auto read = parse_node_object(text);
  std::string out = printed(parse_cluster_node(text)) + printed(is_ready(text)) + printed(labelled_with_cards(text)) +
                    allocatable_of(text, "elasticgpu.io/slot") + mapped_name(text);
  if (!read) return out + printed(read);
  return out + read->name + read->uid + read->runtime + printed(read->labels) + printed(read->annotations) +
         printed(read->capacity) + printed(read->conditions) + printed(read->since) +
         printed(card_modes_of(read->labels, read->annotations)) + printed(is_shared_by_rancher(read->labels)) +
         node_conditions_patch({{"Ready", true, "r", "m"}, {"New", false, "r", "m"}}, *read, "t");
}

std::string gpu(const std::string& text) {
  std::size_t unreadable = 0;
  const auto gpu = parse_gpu_object(text, &unreadable);
  if (!gpu) return gpu.error().what;
  return std::to_string(unreadable) + encode_gpu(*gpu, "u") + gpu_status_patch(*gpu) + printed(gpu->card.health);
}

std::string budget(const std::string& text) {
  const auto read = parse_budget(text);
  if (!read) return read.error().what;
  std::string out = printed(*read);
  for (const auto& labels : std::array<std::map<std::string, std::string>, 4>{
           {{{"app", "a"}, {"tier", "x"}}, {{"app", "z"}, {"tier", "x"}}, {{"app", "a"}, {"old", ""}}, {}}}) {
    PodAsk pod;
    pod.namespace_name = "ml";
    pod.labels = labels;
    out += printed(covers(*read, pod));
  }
  return out;
}

std::string installation(const std::string& text) {
  return printed(parse_workload(text)) + printed(has_authority(text)) + printed(parse_server_version(text));
}

std::string lease(const std::string& text) {
  const auto read = parse_lease(text);
  return read ? encode_lease(*read) + printed(seconds_since_renewal(*read, kNow)) : read.error().what;
}

std::string event(const std::string& text) {
  return printed(parse_board_event(text)) + scheduler_word({text}) + printed(read_object_name(text)) +
         config_map_value(text, "k") + uid_of(text);
}

std::string elastic_claim(const std::string& text) {
  const auto claim = parse_elastic_claim(text, {});
  if (!claim) return claim.error().what;
  return printed(*claim) + protection_patch(*claim, text, true) + protection_patch(*claim, text, false) +
         gpu_name_patch(*claim, "g") + claim_place(text);
}

std::string elastic_gpu(const std::string& text) {
  const auto gpu = parse_elastic_gpu(text, {});
  std::string out = printed(parse_elastic_room(text));
  if (!gpu) return out + gpu.error().what;
  const CardPlace place{"n", {CardId("GPU-1"), CardId("GPU-2")}, Bytes::gib(24)};
  return out + printed(*gpu) + claim_ref_patch(*gpu, {"a", "b", "c"}) +
         (gpu->error.empty() ? encode_elastic_gpu(*gpu) : "") +
         elastic_claim_status(ClaimPhase::kBound, "m", &*gpu, &place) +
         elastic_claim_status(ClaimPhase::kBound, "m", &*gpu, nullptr);
}

std::string resource_slice(const std::string& text) {
  const auto slice = parse_slice(text);
  return slice ? encode_slice(*slice, "u") + printed(*slice) : slice.error().what;
}

std::string claim(const std::string& text) {
  const auto read = parse_claim(text);
  if (!read) return read.error().what;
  return printed(*read) + claim_status_body(*read, {{"d", "p", "v", "s", true, "r", "m", R"({"a":1})"},
                                                    {"d", "p", "v", "", false, "r", "m", ""}}, "t");
}

std::string extender_args(const std::string& text) {
  const auto args = parse_extender_args(text);
  if (!args) return args.error().what;
  return printed(args->pod) + printed(args->priority) + printed(args->nominated) + printed(args->names) +
         printed(args->cache_capable) + printed(args->nodes) +
         to_json(FilterAnswer{{"n1"}, {{"n2", "w"}}, {{"n3", "v"}}, "e"}, *args);
}

std::string preemption_args(const std::string& text) {
  const auto args = parse_preemption_args(text);
  return args ? printed(*args) + preemption_result(args->nodes) : args.error().what;
}

std::string binding_args(const std::string& text) {
  return printed(parse_binding_args(text)) + printed(parse_turned_away(text)) + with_wish(text, "w", "why");
}

std::string injection(const std::string& text) {
  const auto read = parse_injection(text);
  return read ? printed(*read) + printed(docker_arguments(*read)) : read.error().what;
}

std::string kube(const std::string& text) {
  return printed(parse_kube_page(text)) + printed(parse_kube_event(text)) + kube_message(text) +
         printed(kube_has_cause(text, "DisruptionBudget"));
}

std::string reviews(const std::string& text) {
  const auto user = parse_token_review(text);
  return printed(user) + printed(parse_access_review(text)) +
         (user ? access_review(*user, {"get", "g", "r", "n"}) : "");
}

std::string kubeconfig(const std::string& text) {
  const auto read = merge_kubeconfigs(std::array<KubeconfigText, 1>{{{text, "/home/a/config"}}});
  std::string out = printed(read) + printed(parse_kubeconfig(text).has_value());
  if (read && read->exec) out += exec_info(*read->exec, {read->server, read->tls_server_name, "ca"}, true);
  return out;
}

std::string other_context(const std::string& text) {
  return kubeconfig(text) + printed(merge_kubeconfigs(std::array<KubeconfigText, 1>{{{text, ""}}}, "y"));
}

std::string known_cards(const std::string& text) {
  const auto cards = parse_known_cards(text);
  return cards ? encode_known_cards(*cards) : cards.error().what;
}

std::string history_answer(const std::string& text) {
  const auto answer = parse_history_answer(text);
  return answer ? to_json(*answer) : answer.error().what;
}

std::string xid_policy(const std::string& text) {
  const auto policy = parse_xid_policy("p", text, built_in_xid_policy());
  if (!policy) return policy.error().what;
  std::string out;
  for (const std::uint32_t xid : {13U, 48U, 96U, 98U, 99U, 109U, 500U}) out += printed(policy->row(xid));
  return out;
}

std::string cluster_config(const std::string& text) {
  const auto config = parse_cluster_config(text, "s");
  return (config ? printed(config->totals()) : config.error().what) + printed(legal_lines(text).plugins) +
         printed(legal_lines(text).nvidia) + printed(legal_lines(text).dialects());
}

std::string placement(const std::string& text) {
  const auto rules = parse_placement_rules(text);
  return (rules ? to_text(*rules) : rules.error().what) + printed(quotas_of_valid_lines(text));
}

std::string slice_note(const std::string& text) {
  const auto note = decode_slice_note(text.substr(0, text.find('\n')));
  return note ? printed(*note) + printed(encode_slice_note(*note)) : printed(note.error());
}

std::string keeper(const std::string& text) {
  const auto asked = decode_keeper_word(text);
  const auto said = decode_agent_word(text);
  return printed(asked) + printed(said) + (asked ? encode(*asked) : "") + (said ? encode(*said) : "");
}

/// A variant is read with one of the rules: four times as many calls would take seconds.
std::string manifest(const std::string& text) {
  ManifestRules rules;
  switch (text.size() % 4) {
    case 0: rules.to = Spelling::kNative; break;
    case 1: rules.to = Spelling::kClaim; break;
    case 2: rules.to = Spelling::kDra; break;
    default: break;
  }
  const ReadManifest read = read_manifest(text, rules);
  return printed(read.remarks) + read.text;
}

std::string quota(const std::string& text) { return printed(parse_card_quotas(text)); }

std::string share_config(const std::string& text) { return printed(parse_share_config(text)); }

std::string review(const std::string& text) { return printed(parse_review(text)); }

std::string cdi_spec(const std::string& text) { return printed(parse_cdi_spec(text)); }

std::string engine(const std::string& text) {
  return printed(parse_docker_config(text)) + printed(parse_runtime_config(text));
}

std::string checkpoint(const std::string& text) {
  return printed(parse_checkpoint(text)) + printed(parse_registered(text));
}

std::string exec_credential(const std::string& text) {
  return printed(parse_exec_credential(text, "client.authentication.k8s.io/v1"));
}

std::string elastic_class(const std::string& text) { return printed(parse_elastic_class(text)); }

std::string yaml(const std::string& text) { return printed(yaml_of_json(text)); }

std::string toml(const std::string& text) { return printed(toml_settings(text)); }

std::string packages(const std::string& text) { return printed(installed_packages(text)); }

/// A file of tests/fixtures/documents, and the sum of everything that the reader makes of its variants.
struct Row {
  const char* document;
  std::string (*read)(const std::string& text);
  const char* sum;
  const char* scene = nullptr;  // the file that CARVE_DECISIONS asks for; nullptr: named like the document
};

using EveryVariant = void (*)(std::string_view, const std::function<void(const std::string&)>&);

void check(const Row& row, EveryVariant each) {
  Decisions decisions(row.scene == nullptr ? row.document : row.scene);
  each(file(row.document), [&](const std::string& text) { decisions.add(row.read(text)); });
  EXPECT_EQ(fmt::format("{:016x}", decisions.sum()), row.sum)
      << row.document << ": its reader decides otherwise; see base/testing/decisions.h";
}

TEST(Readers, DecideAboutObjectsAsOnRecord) {
  constexpr std::array kRows = {
      Row{"pod.json", pod_of_cluster, "39f9c2f2a617db7f", "pod_of_cluster"},
      Row{"pod.json", pod_of_node, "7faa52240ded49f6", "pod_of_node"},
      Row{"pod.json", pod_of_doctor, "6033c8bf6eea3e69", "pod_of_doctor"},
      Row{"pod.json", claim_uses_of_pod, "838f222fa426dd81", "claim_uses_of_pod"},
      Row{"static_pod.json", pod_of_node, "baca39bbfa411105"},
      Row{"node.json", node, "2828b22b45aeb784"},
      Row{"gpu.json", gpu, "daff13b19eb05836"},
      Row{"budget.json", budget, "17f3f8d5a554eace"},
      Row{"workload.json", installation, "6a99c435f9180f1d"},
      Row{"lease.json", lease, "27abac4034d0d66d"},
      Row{"event.json", event, "7c53b1af79336ef1"},
      Row{"quota.json", quota, "795b43b32d8bf8cb"},
      Row{"claim.json", claim, "957471235cfaab10"},
      Row{"resource_slice.json", resource_slice, "8a8997e3e1cdf739"},
      Row{"share_config.json", share_config, "f9d4accfd883f053"},
      Row{"extender_args.json", extender_args, "9db21c53068560e0"},
      Row{"preemption_args.json", preemption_args, "10b1b7d58730d61d"},
      Row{"binding_args.json", binding_args, "7a5c5362bfca8204"},
      Row{"review.json", review, "e005cef93aba0b8b"},
      Row{"cdi.json", cdi_spec, "11d2a0dea843d6b6"},
      Row{"injection.json", injection, "549a0f023156e89e"},
      Row{"docker.json", engine, "888caeae52168dff"},
      Row{"checkpoint.json", checkpoint, "9b5aa07390281c33"},
      Row{"token_review.json", reviews, "17ee6536a5291b28"},
      Row{"kube_list.json", kube, "dce3e093ee440823"},
      Row{"watch_error.json", kube, "68dfe3e52c4a8006"},
      Row{"exec_credential.json", exec_credential, "4d786d78ac6b13ef"},
      Row{"kubeconfig.json", kubeconfig, "a9dd7b070ea74611"},
      Row{"kubeconfig_pair.json", other_context, "b0aadd5ef37c11f7"},
      Row{"known_cards.json", known_cards, "f957f9d346a6f8b8"},
      Row{"history_answer.json", history_answer, "99f23d53bba44aaa"},
      Row{"elastic_class.json", elastic_class, "8ca9de18f008e7bb"},
      Row{"elastic_claim.json", elastic_claim, "a4d0c3861bebd833"},
      Row{"elastic_gpu.json", elastic_gpu, "54368d3fabed4036"},
      Row{"elastic_gpus.json", elastic_gpu, "793136886ed0f932"},
      Row{"budget.json", yaml, "31ebe7f608a40210", "yaml_of_json"},
  };
  for (const Row& row : kRows) check(row, each_variant_of_json);
}

TEST(Readers, DecideAboutTextsAsOnRecord) {
  constexpr std::array kRows = {
      Row{"cluster_config.conf", cluster_config, "a94c830b1d4fb12e"},
      Row{"placement.conf", placement, "01277073b2b78648"},
      Row{"xid_policy.conf", xid_policy, "7258d9a79a3c47dd"},
      Row{"containerd.toml", toml, "171e73a53e37d5d1"},
      Row{"dpkg_status.txt", packages, "4e3e6992fe16fb51"},
      Row{"slice_notes.txt", slice_note, "128c1b0d72905165"},
      Row{"old_slice_note.txt", slice_note, "5e864ed60ac28741"},
      Row{"keeper.txt", keeper, "5bf7adfc41bc1b55"},
      Row{"agent.txt", keeper, "a9df133347b44f53"},
      Row{"refused.txt", keeper, "89c9c3cc829790c4"},
      Row{"manifest_deployment.yaml", manifest, "ba64316c5114486f"},
      Row{"manifest_pod.yaml", manifest, "d2d60dcd0bac8c10"},
  };
  for (const Row& row : kRows) check(row, each_variant_of_text);
}

}  // namespace
}  // namespace carve::codec
