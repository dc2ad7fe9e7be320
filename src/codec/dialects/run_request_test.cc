#include "codec/dialects/run_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace carve::codec {
namespace {

using testing::HasSubstr;

RunWords words(std::optional<std::string> memory, std::optional<std::string> cores,
               std::optional<std::string> cards = {}, std::optional<std::string> share = {}) {
  RunWords w;
  w.memory = std::move(memory);
  w.cores = std::move(cores);
  w.cards = std::move(cards);
  w.share = std::move(share);
  return w;
}

std::string meaning(const RunWords& w) {
  const auto request = request_from(w);
  return request ? to_human(*request) : request.error().what;
}

TEST(RunRequest, ArgumentsHaveTheirNativeMeaning) {
  EXPECT_EQ(meaning(words("4Gi", "30")), "4 GiB, compute 30, burst");
  EXPECT_EQ(meaning(words("4Gi", {})), "4 GiB, besteffort");
  EXPECT_EQ(meaning(words({}, "30")), "30% of the memory, compute 30, burst");
  EXPECT_EQ(meaning(words("50%", "30", {}, "fixed")), "50% of the memory, compute 30, fixed");
  EXPECT_EQ(meaning(words("4Gi", "30", "2")), "2 cards × (4 GiB, compute 30, burst)");
  EXPECT_EQ(meaning(words({}, "100")), "1 whole card");
  EXPECT_EQ(meaning(words({}, "200")), "2 whole cards");
  EXPECT_EQ(meaning(words({}, {}, "2")), "2 whole cards");
  EXPECT_EQ(meaning(words({}, "100", "2")), "2 whole cards");
  EXPECT_EQ(meaning(words("4Gi", "100")), "4 GiB, compute 100, burst");
  EXPECT_EQ(meaning(words("4Gi", "20", {}, "besteffort")), "4 GiB, compute 20, besteffort");
  EXPECT_EQ(meaning(words("4Gi", {}, {}, "besteffort")), "4 GiB, besteffort");
}

TEST(RunRequest, AmbiguousOrMissingArgumentsAreRefused) {
  EXPECT_THAT(meaning({}), HasSubstr("nothing is requested"));
  EXPECT_THAT(meaning(words("4Gi", "200")), HasSubstr("200 is 2 whole cards and cannot be combined"));
  EXPECT_THAT(meaning(words({}, "200", "2")), HasSubstr("cannot be combined"));
  EXPECT_THAT(meaning(words("4Gi", {}, {}, "burst")), HasSubstr("share class burst guarantees"));
  EXPECT_THAT(meaning(words("4Gi", {}, {}, "fixed")), HasSubstr("share class fixed guarantees"));
  EXPECT_THAT(meaning(words({}, "100", {}, "besteffort")),
              HasSubstr("besteffort guarantees nothing"));
}

TEST(RunRequest, AllErrorsAreReportedTogether) {
  RunWords w = words("4GB", "150", "17", "greedy");
  w.priority = "urgent";
  w.card = {"GPU 1"};
  const auto request = request_from(w);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, Code::kInvalidArgument);
  for (const char* part : {"memory: \"4GB\"", "cores: \"150\"", "cards: \"17\"",
                           "share: \"greedy\" is not a class; legal: fixed, burst or besteffort",
                           "priority: \"urgent\"", "card: a UUID has"}) {
    EXPECT_THAT(request.error().what, HasSubstr(part));
  }
}

TEST(RunRequest, ConstraintsAreRead) {
  RunWords w = words("4Gi", "30");
  w.model = "H200";
  w.card = {"GPU-1", "GPU-2"};
  w.exclusive = true;
  w.priority = "online";
  const auto request = request_from(w);
  ASSERT_TRUE(request) << request.error().what;
  EXPECT_EQ(request->constraints.model, "H200");
  EXPECT_EQ(request->constraints.cards.size(), 2u);
  EXPECT_TRUE(request->constraints.exclusive);
  EXPECT_EQ(request->priority, PriorityClass::kOnline);
  w.cards = "3";
  EXPECT_THAT(meaning(w), HasSubstr("2 named, but the request is for 3 cards"));
  w.cards = "1";
  w.card = {"GPU-1", "GPU-1"};
  EXPECT_THAT(meaning(w), HasSubstr("GPU-1 is named twice"));
}

TEST(RunRequest, AFaultyArgumentIsQuotedUpToALimit) {
  for (const auto word : {&RunWords::share, &RunWords::priority}) {
    RunWords wrong = words("4Gi", "30");
    wrong.*word = std::string(100, 'z');
    const std::string what = meaning(wrong);
    EXPECT_EQ(std::count(what.begin(), what.end(), 'z'), 64) << what;
  }
}

}  // namespace
}  // namespace carve::codec
