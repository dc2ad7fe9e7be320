#include "base/units.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

TEST(Bytes, ArithmeticSaturatesInsteadOfWrapping) {
  EXPECT_EQ(Bytes::max() + Bytes(1), Bytes::max());
  EXPECT_EQ(Bytes(1) - Bytes(2), Bytes(0));
  EXPECT_EQ(Bytes::max() * 2, Bytes::max());
  EXPECT_EQ(Bytes::max() * 0, Bytes(0));
}

TEST(Bytes, PercentRoundsDownAndDoesNotOverflow) {
  EXPECT_EQ(Bytes(199).percent(50), Bytes(99));
  EXPECT_EQ(Bytes::gib(16).percent(25), Bytes::gib(4));
  EXPECT_EQ(Bytes::max().percent(100), Bytes::max());
  EXPECT_EQ(Bytes(7).percent(0), Bytes(0));
}

TEST(Bytes, HumanTextIsRoundedDown) {
  EXPECT_EQ(to_human(Bytes::gib(4)), "4 GiB");
  EXPECT_EQ(to_human(Bytes::gib(4) - Bytes(1)), "3.9 GiB");
  EXPECT_EQ(to_human(Bytes::mib(3300)), "3.2 GiB");
  EXPECT_EQ(to_human(Bytes(0)), "0 bytes");
  EXPECT_EQ(to_human(Bytes(1)), "1 byte");
  EXPECT_EQ(to_human(Bytes::max()), "15.9 EiB");
}

TEST(Bytes, CanonicalTextIsExact) {
  EXPECT_EQ(to_canonical(Bytes::gib(4)), "4Gi");
  EXPECT_EQ(to_canonical(Bytes::mib(1536)), "1536Mi");
  EXPECT_EQ(to_canonical(Bytes(4294967297)), "4294967297");
  EXPECT_EQ(to_canonical(Bytes(0)), "0");
}

TEST(Bytes, TheTwoSidesOfAComparisonNeverReadTheSame) {
  EXPECT_EQ(human_less(Bytes::mib(3300), Bytes::gib(4)), "3.2 GiB < 4 GiB");
  EXPECT_EQ(human_less(Bytes::gib(4) + Bytes(1), Bytes::gib(4) + Bytes(2)),
            "4294967297 bytes < 4294967298 bytes");
}

TEST(CoreShare, ArithmeticSaturates) {
  EXPECT_EQ(CoreShare(30) + CoreShare(70), CoreShare::whole());
  EXPECT_EQ(CoreShare(10) - CoreShare(20), CoreShare(0));
  EXPECT_EQ(CoreShare(0xFFFFFFFFu) + CoreShare(1), CoreShare(0xFFFFFFFFu));
}

}  // namespace
}  // namespace carve
