// Every reader on record, see base/testing/decisions.h: what it makes of a complete document, and of variants that
// differ in one place each. The tests beside each reader check rules.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/testing/on_record.h"
#include "base/testing/printed.h"
#include "codec/admission/review.h"
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
  std::size_t every = 1;        // 2: only every second variant is read, where reading takes long
};

using EveryVariant = void (*)(std::string_view, const std::function<void(const std::string&)>&);

void check(const Row& row, EveryVariant each) {
  const char* scene = row.scene == nullptr ? row.document : row.scene;
  Decisions decisions(scene);
  std::size_t variant = 0;
  each(file(row.document), [&](const std::string& text) {
    if (variant++ % row.every == 0) decisions.add(row.read(text));
  });
  expect_on_record(decisions, scene, row.sum);
}

TEST(Readers, DecideAboutObjectsAsOnRecord) {
  constexpr std::array kRows = {
      Row{"pod.json", pod_of_cluster, "05f7305218118ff6", "pod_of_cluster", 2},
      Row{"pod.json", pod_of_node, "6882f61da3b7b4f6", "pod_of_node", 2},
      Row{"pod.json", pod_of_doctor, "12499340084095f3", "pod_of_doctor", 2},
      Row{"pod.json", claim_uses_of_pod, "6651dec5a8d77fe0", "claim_uses_of_pod", 2},
      Row{"static_pod.json", pod_of_node, "05bf82b554244b7b"},
      Row{"node.json", node, "b22825ae7de12056"},
      Row{"gpu.json", gpu, "45fe655e38ac68b4"},
      Row{"budget.json", budget, "5a815c06744c6416"},
      Row{"workload.json", installation, "2c3f86ccd5cb5ccb"},
      Row{"lease.json", lease, "f535bb94867dcb6f"},
      Row{"event.json", event, "348ba5d317dde0e5"},
      Row{"quota.json", quota, "28177f56262149b9"},
      Row{"claim.json", claim, "0ca176466778f01e"},
      Row{"resource_slice.json", resource_slice, "049f996bf16cbb42"},
      Row{"share_config.json", share_config, "38d57d7f9860d551"},
      Row{"extender_args.json", extender_args, "3adee1731bafb4cd"},
      Row{"preemption_args.json", preemption_args, "4703d18feeea31a9"},
      Row{"binding_args.json", binding_args, "8859a4bedcbb1b20"},
      Row{"review.json", review, "fd52ae65299a4f81"},
      Row{"cdi.json", cdi_spec, "d2bcf0fb98d16202"},
      Row{"injection.json", injection, "1a855db4ca734522"},
      Row{"docker.json", engine, "7f72fb28291d9513"},
      Row{"checkpoint.json", checkpoint, "792537dee398dbc3"},
      Row{"token_review.json", reviews, "ed1bed03fbf1e9f8"},
      Row{"kube_list.json", kube, "ffcdd072e9c164f3"},
      Row{"watch_error.json", kube, "a5458c0d02766598"},
      Row{"exec_credential.json", exec_credential, "d1cca31015fd673d"},
      Row{"kubeconfig.json", kubeconfig, "9efc3060b7bbf4e4", nullptr, 2},
      Row{"kubeconfig_pair.json", other_context, "6b5a07d3c8b9a9a3", nullptr, 2},
      Row{"known_cards.json", known_cards, "4c1237a99d8721a8"},
      Row{"history_answer.json", history_answer, "2fa1f525a90fcd4e"},
      Row{"elastic_class.json", elastic_class, "639eba59796006cf"},
      Row{"elastic_claim.json", elastic_claim, "9b9589f572da839a"},
      Row{"elastic_gpu.json", elastic_gpu, "710894f52ca4f84d"},
      Row{"elastic_gpus.json", elastic_gpu, "6f0347929f365b9b"},
      Row{"budget.json", yaml, "5a4e15807e34f2f8", "yaml_of_json"},
  };
  for (const Row& row : kRows) check(row, each_variant_of_json);
}

TEST(Readers, DecideAboutTextsAsOnRecord) {
  constexpr std::array kRows = {
      Row{"cluster_config.conf", cluster_config, "72edd94fca9555af"},
      Row{"placement.conf", placement, "962303070daa6f6b"},
      Row{"xid_policy.conf", xid_policy, "eb5527034c58cb57"},
      Row{"containerd.toml", toml, "04a12dd2391c0052"},
      Row{"dpkg_status.txt", packages, "ec448b75888927f1"},
      Row{"slice_notes.txt", slice_note, "8dae7d2baac3a3d6"},
      Row{"old_slice_note.txt", slice_note, "e391a53198db6348"},
      Row{"keeper.txt", keeper, "e8a005c831874544"},
      Row{"agent.txt", keeper, "db881a2392d626de"},
      Row{"refused.txt", keeper, "0ca886c13bd5c674"},
      Row{"manifest_deployment.yaml", manifest, "1de7809e2dc7a33c", nullptr, 2},
      Row{"manifest_elastic.yaml", manifest, "0a052fd00555807e", nullptr, 2},
      Row{"manifest_gpu.yaml", manifest, "185618bdbf344111", nullptr, 2},
      Row{"manifest_pod.yaml", manifest, "5353c5a66511dd52", nullptr, 2},
  };
  for (const Row& row : kRows) check(row, each_variant_of_text);
}

}  // namespace
}  // namespace carve::codec
