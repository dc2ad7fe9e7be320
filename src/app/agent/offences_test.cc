#include "app/agent/offences.h"

#include <gtest/gtest.h>

#include "app/agent/slice_table.h"

namespace carve::agent {
namespace {

using std::chrono::seconds;

TEST(Offences, EachCaughtSliceCountsAgainstTheUsersNextSlice) {
  Offences offences;
  Clock::Time now{seconds(100)};
  EXPECT_EQ(offences.prior("user 1", now, {}), 0);
  for (int i = 1; i <= 3; ++i, now += seconds(8)) {
    offences.note("user 1", now, {});
    EXPECT_NEAR(offences.prior("user 1", now, {}), 0.5 * i, 1e-9);
  }
  EXPECT_EQ(offences.prior("user 2", now, {}), 0);
}

TEST(Offences, AreForgottenTwoMinutesAfterTheLastOne) {
  Offences offences;
  Clock::Time now{seconds(100)};
  offences.note("user 1", now, {});
  offences.note("user 1", now += seconds(119), {});
  offences.renew("user 1", now += seconds(60));
  EXPECT_EQ(offences.count("user 1", now + seconds(119), {}), 2);
  EXPECT_EQ(offences.count("user 1", now + seconds(120), {}), 0);
  offences.note("user 1", now += seconds(120), {});
  EXPECT_EQ(offences.count("user 1", now, {}), 1) << "the count restarts";
}

TEST(Offences, ASliceOfAnUnknownUserIsNotRecorded) {
  Offences offences;
  offences.note("", Clock::Time(seconds(1)), {});
  EXPECT_EQ(offences.count("", Clock::Time(seconds(1)), {}), 0);
}

LiveSlice owned_by(OwnerKind kind, const std::string& uid, const std::string& name) {
  LiveSlice slice;
  slice.id = slice.holder.uid = uid;
  slice.holder.kind = kind;
  slice.uid = 1000;
  slice.name = name;
  return slice;
}

/// On Kubernetes all processes run as the node's users, so the user ID says nothing.
TEST(Offences, AreCountedForTheNamespaceOfAPodOrClaim) {
  EXPECT_EQ(offender_of(owned_by(OwnerKind::kPod, "uid-1", "ml/train-0/main")), "namespace ml");
  EXPECT_EQ(offender_of(owned_by(OwnerKind::kPod, "uid-2", "ml/train-1/main")), "namespace ml") << "the next pod";
  EXPECT_EQ(offender_of(owned_by(OwnerKind::kClaim, "uid-3", "ml/shared/gpu")), "namespace ml");
  EXPECT_EQ(offender_of(owned_by(OwnerKind::kPod, "uid-4", "web/train-0/main")), "namespace web");
  EXPECT_EQ(offender_of(owned_by(OwnerKind::kPod, "uid-5", "train")), "uid-5") << "no namespace is known";
}

/// The name of a local slice is its command line: it must not be mistaken for a namespace.
TEST(Offences, AreCountedForTheUserOfALocalSlice) {
  EXPECT_EQ(offender_of(owned_by(OwnerKind::kLocal, "run-1", "ml/train.py")), "user 1000");
  LiveSlice other = owned_by(OwnerKind::kLocal, "run-2", "ml/train.py");
  other.uid = 1001;
  EXPECT_EQ(offender_of(other), "user 1001");
}

}  // namespace
}  // namespace carve::agent
