// The default values of the model's types.
#include <gtest/gtest.h>

#include "core/cluster/assemble.h"
#include "core/cluster/fit_cache.h"
#include "core/cluster/nominated_reservation.h"
#include "core/cluster/ranking.h"
#include "core/cluster/ruled_fit.h"
#include "core/health/card_health.h"
#include "core/journal/journal.h"
#include "core/ledger/ledger.h"
#include "core/model/record.h"
#include "core/model/request.h"
#include "core/policy/node_policy.h"
#include "core/policy/victims.h"
#include "core/topology/links.h"

namespace carve {
namespace {

TEST(Defaults, OfARequestAndWhatItBecomes) {
  const Request request;
  EXPECT_EQ(request.count, 1U);
  EXPECT_FALSE(request.whole || request.constraints.exclusive);
  EXPECT_EQ(request.dialect, "native");
  const Slice slice;
  EXPECT_FALSE(slice.exclusive || slice.whole);
  const RecordPart part;
  EXPECT_FALSE(part.exclusive || part.whole);
  EXPECT_EQ(Record().epoch, 0U) << "outside Kubernetes";
  EXPECT_EQ(kMaxPartsPerRecord, 64U);
  EXPECT_EQ(kMaxCardsPerRequest, 16U);
}

TEST(Defaults, OfACard) {
  EXPECT_TRUE(Health().ok);
  EXPECT_EQ(Card().numa_node, -1) << "unknown";
  EXPECT_EQ(Card().minor, -1) << "unknown";
  EXPECT_TRUE(CardLook().listed);
  EXPECT_FALSE(CardLook().lost);
  EXPECT_EQ(HeldXid().xid, 0U);
  EXPECT_EQ(Link().lanes, 0U);
  EXPECT_EQ(Connection().weight, 0U);
  const CardUse use;
  EXPECT_FALSE(use.exclusive);
  EXPECT_EQ(use.slices + use.owners, 0U);
  EXPECT_FALSE(Holding().exclusive || Holding().whole);
}

TEST(Defaults, OfANodesAnswers) {
  EXPECT_EQ(Booking().epoch, 0U);
  EXPECT_FALSE(Booking().prepared || Booking().reserved);
  EXPECT_EQ(FittingNode().score + FittingView().score + RankedNode().score + RankedCard().left, 0);
  EXPECT_FALSE(RefusedNode().final || RefusedView().final);
  EXPECT_EQ(FittingView().number, 0U);
  EXPECT_EQ(RefusedGroup().nodes, 0U);
  EXPECT_EQ(FitCache::Stats().remembered + FitCache::Stats().asked, 0U);
  EXPECT_FALSE(NodeAnswer().fits || NodeAnswer().final);
  EXPECT_EQ(NodeAnswer().score, 0);
  EXPECT_EQ(Leftover().cards + Leftover().node + Leftover().owners, 0);
}

TEST(Defaults, OfHolders) {
  EXPECT_EQ(NominatedReservation().priority, 0);
  EXPECT_EQ(Holder().priority, 0);
  EXPECT_EQ(Holder().started, 0);
  EXPECT_EQ(VictimCost().violations + VictimCost().count, 0U);
  EXPECT_EQ(VictimCost().highest + VictimCost().sum + VictimCost().early, 0);
  EXPECT_EQ(SetCounter().value, 0U);
}

TEST(Defaults, OfNotes) {
  EXPECT_FALSE(SliceNote().keep || SliceNote().in_private_folder || SliceNote().prepared_for);
  EXPECT_EQ(SliceNote().uid, 0U);
  EXPECT_FALSE(PreparedFor().ending);
  EXPECT_EQ(kMaxNoteBytes, 4000U);
}

}  // namespace
}  // namespace carve
