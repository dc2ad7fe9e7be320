// The default values. The readers are tolerant, so these are also the values of absent members.
#include <gtest/gtest.h>

#include "codec/admission/review.h"
#include "codec/cluster/budget.h"
#include "codec/cluster/cluster_node.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/cluster/installation.h"
#include "codec/cluster/lease.h"
#include "codec/dialects/dialect.h"
#include "codec/dialects/projection.h"
#include "codec/dialects/run_request.h"
#include "codec/dra/claim.h"
#include "codec/kube/event.h"
#include "codec/dra/resource_slice.h"
#include "codec/extender/extender.h"
#include "codec/host/injection.h"
#include "codec/journal/journal_text.h"
#include "codec/kube/messages.h"
#include "codec/kubeconfig/exec_plugin.h"
#include "codec/kubelet/node_pod.h"
#include "codec/node/gpu_object.h"
#include "codec/node/node_object.h"
#include "codec/views/explanation.h"
#include "codec/views/gpushare_inspect.h"

namespace carve::codec {
namespace {

TEST(Defaults, OfAPodOnItsWayToANode) {
  const ClusterPod pod;
  EXPECT_FALSE(pod.ended || pod.deleting || pod.gated || pod.started || pod.never_preempts || pod.refused ||
               pod.mirror);
  EXPECT_EQ(pod.priority, 0);
  EXPECT_EQ(pod.started_at, 0);
  EXPECT_EQ(pod.grace, 30) << "the default of Kubernetes";
  const NodePod there;
  EXPECT_FALSE(there.ended || there.pending);
  const ReviewedContainer container;
  EXPECT_FALSE(container.ephemeral || container.has_limits || container.has_requests || container.has_resources ||
               container.has_env || container.env_from || container.asks_others);
  EXPECT_EQ(ReviewedContainer::Visible().index, 0U);
  EXPECT_FALSE(ReviewedContainer::Visible().from);
  EXPECT_FALSE(Review().has_annotations);
  EXPECT_FALSE(RunWords().exclusive);
}

TEST(Defaults, OfACallOfTheScheduler) {
  EXPECT_EQ(ExtenderArgs().priority, 0);
  EXPECT_TRUE(ExtenderArgs().cache_capable);
  EXPECT_EQ(HostScore().score, 0);
  EXPECT_EQ(PreemptionArgs().priority, 0);
  EXPECT_EQ(PreemptionArgs::Victims().violations, 0);
}

TEST(Defaults, OfAnInstallation) {
  const Workload workload;
  EXPECT_EQ(workload.wanted + workload.ready + workload.updated, 0);
  EXPECT_EQ(ServerVersion().minor, -1) << "unknown";
  EXPECT_EQ(Lease().seconds + Lease().transitions, 0);
  EXPECT_FALSE(Budget().selects);
  EXPECT_EQ(Budget().allowed, 0);
  EXPECT_EQ(ClusterNode().slots, 0U);
  EXPECT_FALSE(ClusterNode().leaving);
  EXPECT_FALSE(NodeCondition().on);
  EXPECT_EQ(KubeEvent().kind, KubeEvent::Kind::kError);
  EXPECT_EQ(KubeEvent().status, 0);
  EXPECT_FALSE(ExecPlugin().wants_cluster);
  EXPECT_EQ(ExecPlugin().terminal, ExecPlugin::Terminal::kIfAvailable);
}

TEST(Defaults, OfCardsAndClaims) {
  EXPECT_TRUE(DialectSettings().nvidia_by_slots);
  EXPECT_FALSE(DialectSettings().hami);
  EXPECT_TRUE(Dialect().together.empty());
  EXPECT_EQ(DialectSettings().deepomatic_containers, 0U);
  EXPECT_EQ(CountedCard().index, -1) << "unknown";
  EXPECT_FALSE(ClaimConfig().from_class);
  EXPECT_FALSE(Claim().allocated);
  EXPECT_TRUE(DeviceStatus().ready);
  EXPECT_TRUE(EventNote().warning);
  EXPECT_EQ(EventTimes().count, 1);
  EXPECT_EQ(PublishedSlice().generation + PublishedSlice().count, 0);
  EXPECT_TRUE(Injection::Mount().read_only);
  EXPECT_EQ(GpuLink().lanes, 0);
  EXPECT_FALSE(GpuHolder().ending);
  EXPECT_EQ(GpuObject().index, 0);
  EXPECT_EQ(GpuDigest().spec + GpuDigest().status, 0U);
  EXPECT_EQ(GpushareHolder().used, 0U);
  EXPECT_EQ(GpushareCard().index, 0);
  EXPECT_EQ(GpushareCard().total + GpushareCard().used, 0U);
  EXPECT_EQ(GpushareNode().total + GpushareNode().used, 0U);
}

TEST(Defaults, OfEventsAndReplays) {
  const Explanation explanation;
  EXPECT_FALSE(explanation.ended || explanation.final);
  EXPECT_EQ(explanation.epoch + explanation.nodes, 0U);
  const Replay replay;
  EXPECT_EQ(replay.next_number, 1U) << "a journal starts with 1";
  EXPECT_EQ(replay.good_bytes + replay.torn_bytes + replay.lines, 0U);
  EXPECT_EQ(kJournalVersion, 1);
}

}  // namespace
}  // namespace carve::codec
