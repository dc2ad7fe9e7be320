#include "app/cli/cluster/objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "app/control/api/explain.h"
#include "app/control/preempt/nomination.h"
#include "app/control/preempt/preemption_candidates.h"
#include "app/control/state/policy_watcher.h"
#include "app/control/state/unhealthy_cards.h"
#include "codec/claims/elastic_objects.h"
#include "codec/dialects/gpushare_unhealthy.h"
#include "core/cluster/cluster.h"

namespace carve::cli {
namespace {

std::string why_of(const codec::Explanation& said) {
  if (!said.wrong.empty()) return said.wrong;
  if (!said.fits.empty()) return fmt::format("fits on {}; it waits for something else", said.fits.front());
  if (said.refused.empty()) return "no node has cards";
  return explain(said.refused, said.refused.size());
}

/// An invalid list marks no card. control reports it with an event on the ConfigMap; the command line does not.
void mark_cards(const Objects& all, control::ClusterModel* model) {
  Log quiet([](std::string_view) {});
  control::UnhealthyCards cards(*model, quiet, {});
  cards.sink().replace(all.config_maps);
}

/// Like control at its start: a nomination reserves capacity as long as the pod's status contains it. The component
/// that gives the reservation up removes the nomination.
void keep_room(const PlacementRules& rules, control::ClusterModel* model) {
  const auto going = control::preemption_candidates_of(*model, {}).going;
  const auto named =
      model->pods_where([](const control::PodEntry& pod) { return pod.waits() && !pod.object.nominated.empty(); });
  for (const auto& pod : named) {
    const auto& node = pod->object.nominated;
    const auto cluster = model->snapshot();
    const auto there = cluster->find(node);
    if (there == cluster->end()) continue;
    const auto& policy = control::card_policy(rules, pod->object.ask, *cluster, node);
    if (auto hold = control::reservation_of_nomination(*pod, *there->second, going, policy))
      model->put_nominated_reservation(node, std::move(*hold), Clock::Time::max());
  }
}

/// The objects of Elastic GPU, which a cluster may lack.
void read_elastic(KubeApi& api, Objects* all) {
  for (const auto& [path, into] :
       {std::pair{codec::kElasticGpuClasses, &all->elastic_classes}, std::pair{codec::kElasticGpus, &all->elastic_gpus},
        std::pair{codec::kElasticGpuClaims, &all->elastic_claims}}) {
    auto list = api.list(std::string(path));
    if (list) {
      *into = std::move(*list);
    } else if (list.error().code != Code::kNotFound) {
      all->no_claims = list.error().what;
    }
  }
}

}  // namespace

Result<Objects> read_all(KubeApi& api) {
  Objects all;
  auto gpus = api.list("/apis/elasticgpu.io/v1alpha1/gpus");
  if (!gpus && gpus.error().code == Code::kNotFound)
    return fail(Code::kNotFound,
                "this cluster has no resource gpus.elasticgpu.io: Carve is not installed (apply deploy/crds)");
  if (!gpus) return fail_in("GPU objects", gpus.error());
  all.gpus = std::move(*gpus);
  CARVE_TRY(all.nodes, api.list("/api/v1/nodes"));
  CARVE_TRY(all.pods, api.list("/api/v1/pods"));
  auto maps = api.list(control::UnhealthyCards::kPath);
  // kube-system belongs to the administrators: many users who may list Nodes and Pods may not read its ConfigMaps.
  if (!maps && maps.error().code != Code::kPermissionDenied) return tl::unexpected(maps.error());
  if (maps) {
    all.config_maps = std::move(*maps);
  } else {
    all.no_config_maps = maps.error().what;
  }
  read_elastic(api, &all);
  return all;
}

std::vector<codec::GpuObject> cards_of(const Objects& all) {
  std::vector<codec::GpuObject> cards;
  for (const auto& text : all.gpus) {
    std::size_t unreadable_holders = 0;
    if (auto gpu = codec::parse_gpu_object(text, &unreadable_holders)) cards.push_back(std::move(*gpu));
  }
  return cards;
}

std::string unread_of(const Objects& all) {
  std::string text;
  if (!all.no_config_maps.empty()) {
    text = fmt::format(
        "you may not list ConfigMaps in {}, so a card that ConfigMap {}<node> takes out of use counts as usable",
        codec::kUnhealthyGpusSpace, codec::kUnhealthyGpusPrefix);
  }
  if (!all.no_claims.empty()) {
    text += fmt::format(
        "{}you may not list Elastic GPU's objects in all namespaces, so the room of claims without pods counts as free",
        text.empty() ? "" : "; ");
  }
  return text;
}

KnownCluster::KnownCluster(const ClusterAccess& access, const Objects& all)
    : claims_(access.dialects, access.log),
      requests_(access.dialects, &claims_),
      model_(requests_, access.clock, access.log) {
  claims_.classes().replace(all.elastic_classes);
  claims_.gpus().replace(all.elastic_gpus);
  claims_.claims().replace(all.elastic_claims);
  model_.nodes().replace(all.nodes);
  model_.gpus().replace(all.gpus);
  model_.pods().replace(all.pods);
  model_.set_quotas(access.placement.quotas);
  mark_cards(all, &model_);
  keep_room(access.placement, &model_);
  keep_claims();
}

void KnownCluster::keep_claims() {
  if (claims_.empty()) return;
  const auto world = claims_.world();
  claims_.keep_users({}, control::claim_users(model_, world, {}));
  control::GpuCards cards;
  (void)control::claim_rooms(model_, world, {}, &cards);
  claims_.know_cards(cards);
  // As in control, a pod that waits uses its claims from the first question about it.
  const auto waiting = model_.pods_where([this](const control::PodEntry& pod) {
    return pod.object.node.empty() && !pod.object.ended && requests_.uses_claims(pod.object.ask);
  });
  for (const auto& pod : waiting) (void)requests_.take(pod->object.ask);
  const auto users = claims_.users();
  rooms_ = control::claim_rooms(model_, world, users, &cards);
  for (const auto& [uid, room] : rooms_)
    model_.put_nominated_reservation(room.node, room.reservation, Clock::Time::max());
}

void KnownCluster::add_claims(std::vector<codec::GpuObject>* cards) const {
  control::add_room_holders(model_, claims_.world(), rooms_, cards);
}

std::vector<codec::WaitingPod> waiting_of(const ClusterAccess& access, const Objects& all,
                                          const KnownCluster& cluster) {
  std::vector<codec::WaitingPod> waiting;
  for (const auto& text : all.pods) {
    const auto pod = codec::parse_cluster_pod(text);
    if (!pod || !pod->node.empty() || pod->ended || !codec::carries_slots(pod->ask)) continue;
    const auto said = control::explain(*pod, cluster.requests(), cluster.model(), access.placement);
    if (said.asks.empty() && said.wrong.empty()) continue;
    waiting.push_back({said.namespace_name, said.name, to_human(said.asks), why_of(said)});
  }
  return waiting;
}

}  // namespace carve::cli
