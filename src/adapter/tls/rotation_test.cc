#include "adapter/tls/rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/tls/secret.h"

namespace carve::tls {
namespace {

using std::chrono::hours;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Purpose kServing{"carve-control", {"carve-control", "carve-control.carve-system.svc"}};
const Purpose kClient{"carve-scheduler", {}};
const Lives kLives{hours(24 * 360), hours(24 * 30)};

class RotationTest : public ::testing::Test {
 protected:
  std::vector<std::string> step() {
    std::vector<std::string> changed;
    const auto done = renew(kept_, kServing, kLives, now_, &changed);
    EXPECT_TRUE(done) << done.error().what;
    const auto client_done = renew_client(client_, kept_, kClient, kLives, now_, &changed);
    EXPECT_TRUE(client_done) << client_done.error().what;
    return changed;
  }
  /// True when a client that trusts these authorities accepts this certificate today.
  bool accepted(const std::string& certificate, const std::vector<std::string>& authorities) const {
    const auto facts = facts_of(certificate);
    if (!facts || !facts->life.has(now_)) return false;
    for (const auto& one : authorities) {
      const auto authority = facts_of(one);
      if (signed_by(certificate, one) && authority && authority->life.has(now_)) return true;
    }
    return false;
  }

  Clock::WallTime now_ = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1);
  Kept kept_;
  Pair client_;
};

TEST_F(RotationTest, CreatesEverythingOnce) {
  EXPECT_THAT(step(), ElementsAre("authority", "serving certificate", "client certificate"));
  EXPECT_THAT(step(), IsEmpty());
  const auto facts = facts_of(kept_.serving.certificate);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->purpose, kServing);
  EXPECT_TRUE(belongs(kept_.serving.certificate, kept_.serving.key));
  EXPECT_FALSE(belongs(kept_.serving.certificate, kept_.authority_key));
  EXPECT_TRUE(accepted(kept_.serving.certificate, kept_.authorities));
  EXPECT_TRUE(accepted(client_.certificate, kept_.authorities));
  EXPECT_FALSE(signed_by(kept_.authorities[0], kept_.serving.certificate));
}

TEST_F(RotationTest, RenewsACertificateAfterTwoThirdsOfItsValidity) {
  step();
  const auto first = kept_.serving;
  now_ += hours(24 * 19);
  EXPECT_THAT(step(), IsEmpty());
  now_ += hours(24 * 2);
  EXPECT_THAT(step(), ElementsAre("serving certificate", "client certificate"));
  EXPECT_NE(kept_.serving, first);
  EXPECT_TRUE(accepted(first.certificate, kept_.authorities)) << "the previous one is still valid";
}

// Two years with a check every three days. A client that read the authorities within the last 57 days (a sixth of an
// authority's validity) accepts the current serving certificate. A client that read its own certificate within the last
// nine days is accepted (the oldest certificate that it can have read is renewed ten days before its end).
TEST_F(RotationTest, OnEveryDayClientsAndServerAcceptEachOther) {
  step();
  std::vector<std::vector<std::string>> read_authorities;  // by check
  std::vector<std::string> clients;
  std::size_t authorities = 1, signers = 1;
  std::string signer = kept_.authorities[0];
  for (int check = 0; check < 240; ++check, now_ += hours(72)) {
    step();
    read_authorities.push_back(kept_.authorities);
    clients.push_back(client_.certificate);
    authorities = std::max(authorities, kept_.authorities.size());
    if (kept_.authorities[0] != signer) ++signers;
    signer = kept_.authorities[0];
    for (const int back : {0, 1, 10, 19}) {
      if (back > check) continue;
      ASSERT_TRUE(accepted(kept_.serving.certificate, read_authorities[static_cast<std::size_t>(check - back)]))
          << "check " << check << ", authorities read " << back << " checks before";
    }
    for (const int back : {0, 1, 3}) {
      if (back > check) continue;
      ASSERT_TRUE(accepted(clients[static_cast<std::size_t>(check - back)], kept_.authorities))
          << "check " << check << ", certificate read " << back << " checks before";
    }
  }
  EXPECT_EQ(authorities, 2U) << "never more than two";
  EXPECT_EQ(signers, 3U) << "two successions in two years of authorities of 360 days";
}

TEST_F(RotationTest, CreatesEverythingAgainAfterTheAuthorityExpired) {
  step();
  now_ += hours(24 * 400);
  EXPECT_THAT(step(), Contains("authority"));
  EXPECT_THAT(kept_.authorities, SizeIs(1));
  EXPECT_TRUE(accepted(kept_.serving.certificate, kept_.authorities));
}

TEST_F(RotationTest, AnExistingSuccessorReplacesAnExpiredAuthority) {
  step();
  now_ += hours(24 * 250);
  EXPECT_THAT(step(), Contains("the authority's successor"));
  EXPECT_THAT(kept_.authorities, SizeIs(2));
  const auto successor = kept_.authorities[1];
  now_ += hours(24 * 120);  // no check in between
  EXPECT_THAT(step(), Contains("the authority's successor signs"));
  EXPECT_THAT(kept_.authorities, ElementsAre(successor));
  EXPECT_TRUE(kept_.next_key.empty());
  EXPECT_TRUE(belongs(successor, kept_.authority_key));
}

TEST_F(RotationTest, ReplacesOnlyWhatIsDamaged) {
  step();
  const auto good = kept_;
  kept_.serving.key = "garbage";
  EXPECT_THAT(step(), ElementsAre("serving certificate"));
  kept_.serving = {client_.certificate, client_.key};  // of another purpose
  EXPECT_THAT(step(), ElementsAre("serving certificate"));
  EXPECT_EQ(kept_.authorities, good.authorities);
  kept_.next_key = good.serving.key;  // does not match any of the authorities
  EXPECT_THAT(step(), ElementsAre("the key of a missing successor was removed"));
  kept_.authority_key = "garbage";
  EXPECT_THAT(step(), ElementsAre("authority", "serving certificate", "client certificate"));
  EXPECT_EQ(kept_.authorities.at(1), good.authorities[0]) << "a trusted authority stays trusted";
}

TEST_F(RotationTest, ASlowClockChangesNothing) {
  step();
  now_ -= hours(3);
  EXPECT_THAT(step(), IsEmpty());
}

TEST(Base64, DecodesWhatItEncodedAndRefusesInvalidText) {
  for (const std::string& bytes : {std::string(), std::string("a"), std::string("ab"), std::string("abc"),
                                  std::string("\0\xff\0=", 4), std::string(1000, 'x')}) {
    const auto back = from_base64(to_base64(bytes));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, bytes);
  }
  EXPECT_EQ(to_base64("carve"), "Y2FydmU=");  // printf carve | base64
  for (const char* wrong : {"a", "abc", "a===", "!!!!", "Y2Fydm\xff="}) EXPECT_FALSE(from_base64(wrong)) << wrong;
}

TEST(Certificates, SplitsATextIntoItsCertificates) {
  const Life life{Clock::WallTime(), Clock::WallTime() + hours(1)};
  const auto a = make_authority("a", life);
  const auto b = make_authority("b", life);
  ASSERT_TRUE(a && b);
  EXPECT_THAT(certificates_in("x\n" + a->certificate + "in between\n" + b->certificate + "end"),
              ElementsAre(a->certificate, b->certificate));
  auto damaged = a->certificate;
  damaged[60] = '!';
  EXPECT_THAT(certificates_in(damaged + b->certificate), ElementsAre(b->certificate));
  EXPECT_THAT(certificates_in("-----BEGIN CERTIFICATE-----\n"), IsEmpty());
  EXPECT_THAT(certificates_in(""), IsEmpty());
  EXPECT_EQ(facts_of(a->certificate)->purpose.common_name, "a");
  EXPECT_FALSE(facts_of("nonsense"));
  EXPECT_FALSE(issue({a->certificate, b->key}, kClient, life)) << "the key of another certificate";
}

}  // namespace
}  // namespace carve::tls
