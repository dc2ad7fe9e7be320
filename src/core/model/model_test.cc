#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "core/model/card_rates.h"
#include "core/model/record.h"
#include "core/model/request.h"

namespace carve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Request legal() {
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(4));
  request.compute = CoreShare(30);
  return request;
}

std::vector<std::string> texts(const std::vector<Error>& errors) {
  std::vector<std::string> all;
  for (const Error& error : errors) all.push_back(error.what);
  return all;
}

/// The faults of a request that differs from a legal one in this way.
std::vector<std::string> wrong(const std::function<void(Request&)>& change) {
  Request request = legal();
  change(request);
  return texts(validate(request));
}

TEST(Request, QuantitiesAreLegalUpToTheirLimits) {
  for (const std::uint32_t count : {1U, 16U})
    EXPECT_THAT(wrong([&](Request& r) { r.count = count; }), IsEmpty()) << count;
  for (const std::uint32_t count : {0U, 17U})
    EXPECT_THAT(wrong([&](Request& r) { r.count = count; }), ElementsAre(HasSubstr("ask for 1 to 16 cards"))) << count;
  for (const std::uint32_t percent : {1U, 100U})
    EXPECT_THAT(wrong([&](Request& r) { r.memory = MemoryAsk::of_percent(percent); }), IsEmpty()) << percent;
  EXPECT_THAT(wrong([](Request& r) { r.memory = MemoryAsk::of_percent(101); }),
              ElementsAre(HasSubstr("memory: 101% of a card is not legal")));
  EXPECT_THAT(wrong([](Request& r) { r.memory = MemoryAsk::of(kSmallestSlice); }), IsEmpty());
  EXPECT_THAT(wrong([](Request& r) { r.memory = MemoryAsk::of(kSmallestSlice - Bytes(1)); }),
              ElementsAre("memory: 1048575 bytes is not legal; ask for at least 1 MiB (1048576 bytes) of each card"));
  EXPECT_THAT(wrong([](Request& r) { r.memory = MemoryAsk::of(Bytes(0)); }), ElementsAre(HasSubstr("memory: 0 bytes")));
  for (const std::uint32_t compute : {1U, 100U})
    EXPECT_THAT(wrong([&](Request& r) { r.compute = CoreShare(compute); }), IsEmpty()) << compute;
  EXPECT_THAT(wrong([](Request& r) { r.compute = CoreShare(101); }), ElementsAre(HasSubstr("cores: 101 is not legal")));
  EXPECT_THAT(wrong([](Request& r) { r.compute = CoreShare(0); }), ElementsAre(HasSubstr("burst guarantees compute")));
  EXPECT_THAT(wrong([](Request& r) { r.compute = CoreShare(0), r.share = ShareClass::kBestEffort; }), IsEmpty());
}

TEST(Request, ACoreLimitIsAtLeastTheComputeAndOfAClassWithoutAnotherLimit) {
  const auto limited = [](std::uint32_t limit, const std::function<void(Request&)>& change = [](Request&) {}) {
    return wrong([&](Request& r) {
      r.ceiling = CoreShare(limit);
      change(r);
    });
  };
  for (const std::uint32_t limit : {30U, 60U, 100U}) EXPECT_THAT(limited(limit), IsEmpty()) << limit;
  EXPECT_THAT(limited(29),
              ElementsAre("core-limit: 29 is below the 30 hundredths that are requested; specify 30 to 100"));
  for (const std::uint32_t limit : {0U, 101U})
    EXPECT_THAT(limited(limit), ElementsAre(HasSubstr("specify 1 to 100 hundredths of each card"))) << limit;
  const auto besteffort = [](Request& r) { r.share = ShareClass::kBestEffort, r.compute = CoreShare(); };
  EXPECT_THAT(limited(1, besteffort), IsEmpty());
  EXPECT_THAT(limited(60, [](Request& r) { r.share = ShareClass::kFixed; }), ElementsAre(HasSubstr("fixed")));
  EXPECT_THAT(limited(60, [](Request& r) { r.share = ShareClass::kNode; }), ElementsAre(HasSubstr("whose policy")));
  EXPECT_THAT(limited(60, [](Request& r) { r.compute = ComputeAsk::of_tflops(3); }),
              ElementsAre(HasSubstr("together with 3 TFLOPS")));
  EXPECT_THAT(wrong([](Request& r) { r = whole_cards(1), r.ceiling = CoreShare(60); }),
              ElementsAre(HasSubstr("a whole card")));
  EXPECT_THAT(limited(99, [](Request& r) { r.compute = CoreShare(101); }), ElementsAre(HasSubstr("cores: 101")))
      << "one fault is reported once";
}

// The fractions of data sheets: 20 TFLOPS are 30 hundredths of an H200, and more than a V100 has.
TEST(Request, ARateIsAnotherShareOfEachModel) {
  const auto on = [](std::uint32_t tflops, const char* model) -> int {
    const auto share = ComputeAsk::of_tflops(tflops).on(model);
    return share ? static_cast<int>(share->hundredths()) : -1;
  };
  EXPECT_EQ(on(20, "NVIDIA H200"), 30);
  EXPECT_EQ(on(20, "NVIDIA H100 80GB HBM3"), 30);
  EXPECT_EQ(on(20, "NVIDIA H100 PCIe"), 40);
  EXPECT_EQ(on(67, "NVIDIA H200"), 100);
  EXPECT_EQ(on(68, "NVIDIA H200"), 102) << "more than the card has";
  EXPECT_EQ(on(20, "Tesla V100-SXM2-32GB"), 128);
  EXPECT_EQ(on(8, "Tesla T4"), 99);
  EXPECT_EQ(on(1, "NVIDIA A100-SXM4-80GB"), 6) << "not an A10";
  EXPECT_EQ(on(1, "nvidia a10"), 4);
  EXPECT_EQ(on(1, "NVIDIA L40S"), 2);
  EXPECT_EQ(on(1, "NVIDIA T400 4GB"), -1) << "not a T4";
  EXPECT_EQ(on(1, "another card"), -1);
  EXPECT_EQ(on(1, ""), -1);
  EXPECT_EQ(ComputeAsk(CoreShare(30)).on("another card"), CoreShare(30));
}

/// Rows like "| Ada | L4 30.3, L40 90.5 |" below "## TFLOPS".
TEST(CardRates, AreThoseOfTheDocument) {
  std::ifstream file(CARVE_DIALECTS_PAGE);
  int models = 0;
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) here = line == "## TFLOPS";
    const auto cell = line.find(" | ");
    if (!here || !line.starts_with("| ") || cell == std::string::npos) continue;
    std::istringstream rates(line.substr(cell + 3, line.rfind(" |") - cell - 3));
    for (std::string one; std::getline(rates >> std::ws, one, ',');) {
      const auto space = one.rfind(' ');
      const auto dot = one.find('.', space == std::string::npos ? 0 : space);
      if (space == std::string::npos || dot == std::string::npos) continue;  // the heading
      const auto tenths = std::stoul(one.substr(space + 1, dot - space - 1) + one.substr(dot + 1));
      EXPECT_EQ(fp32_peak("NVIDIA " + one.substr(0, space)), tenths) << one;
      EXPECT_EQ(fp32_peak(one.substr(0, space)), tenths) << one;
      ++models;
    }
  }
  EXPECT_EQ(models, 31) << "all of card_rates.cc";
}

TEST(Request, IsDividedIntoEqualParts) {
  Request request = legal();
  EXPECT_EQ(to_human(part_of(request, 1, 4)), "1 GiB, compute 7, burst");
  EXPECT_EQ(to_human(part_of(request, 3, 4)), "3 GiB, compute 21, burst");
  EXPECT_EQ(part_of(request, 4, 4), request);
  request.compute = ComputeAsk::of_tflops(20);
  EXPECT_EQ(to_human(part_of(request, 1, 4)), "1 GiB, compute 5 TFLOPS, burst");
  request.compute = ComputeAsk::of_tflops(3);
  EXPECT_EQ(part_of(request, 1, 4).compute, ComputeAsk::of_tflops(1)) << "0 would mean that no rate is requested";
  EXPECT_EQ(part_of(whole_cards(1), 1, 4), whole_cards(1));
}

TEST(Request, AWholeCardTakesAllMemoryAndCompute) {
  EXPECT_THAT(texts(validate(whole_cards(1))), IsEmpty());
  const auto whole = [](const std::function<void(Request&)>& change) {
    return wrong([&](Request& r) {
      r = whole_cards(1);
      change(r);
    });
  };
  const auto all = ElementsAre(HasSubstr("a whole card takes 100% of its memory and compute 100, and is exclusive"));
  EXPECT_THAT(whole([](Request& r) { r.memory = MemoryAsk::of_percent(99); }), all);
  EXPECT_THAT(whole([](Request& r) { r.compute = CoreShare(99); }), all);
  EXPECT_THAT(whole([](Request& r) { r.constraints.exclusive = false; }), all);
  EXPECT_THAT(whole([](Request& r) { r.share = ShareClass::kBestEffort; }),
              ElementsAre(HasSubstr("share: besteffort")));
}

TEST(Request, ConstraintsAreValidated) {
  const auto cards = [](std::uint32_t count, std::vector<std::string> names) {
    return wrong([&](Request& r) {
      r.count = count;
      for (const auto& name : names) r.constraints.cards.emplace_back(name);
    });
  };
  EXPECT_THAT(cards(2, {"GPU-1", "GPU-2"}), IsEmpty());
  EXPECT_THAT(cards(2, {"GPU-1", "GPU-2", "GPU-3"}), IsEmpty());
  EXPECT_THAT(cards(2, {"GPU-1"}),
              ElementsAre("card: 1 named, but the request is for 2 cards; name at least 2 or none"));
  EXPECT_THAT(cards(1, {"GPU-1", "GPU-1"}), ElementsAre("card: GPU-1 is named twice"));
  EXPECT_THAT(cards(1, {"GPU 1"}), ElementsAre(HasSubstr("card: a UUID has")));
  const auto model = [](const std::string& name) { return wrong([&](Request& r) { r.constraints.model = name; }); };
  EXPECT_THAT(model(std::string(128, 'x')), IsEmpty());
  EXPECT_THAT(model(" ~"), IsEmpty()) << "the first and the last printable character";
  for (const std::string& name : {std::string(129, 'x'), std::string("a\x1f"), std::string("a\x7f")})
    EXPECT_THAT(model(name), ElementsAre(HasSubstr("at most 128 printable"))) << name;
  EXPECT_THAT(wrong([](Request& r) { r.dialect = ""; }), ElementsAre(HasSubstr("dialect: ")));
}

TEST(Request, AllFaultsAreReportedTogether) {
  EXPECT_TRUE(joined({}));
  const auto all = joined(validate([] {
    Request request = legal();
    request.count = 0;
    request.compute = CoreShare(200);
    return request;
  }()));
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kInvalidArgument);
  EXPECT_EQ(all.error().what,
            "cards: 0 is not legal; ask for 1 to 16 cards; cores: 200 is not legal; ask for 1 to 100 "
            "hundredths of each card");
}

TEST(Request, HasAReadableText) {
  Request request = legal();
  EXPECT_EQ(to_human(request), "4 GiB, compute 30, burst");
  request.count = 2;
  request.constraints.exclusive = true;
  EXPECT_EQ(to_human(request), "2 cards × (4 GiB, compute 30, burst, exclusive)");
  request = legal();
  request.memory = MemoryAsk::of_percent(50);
  request.compute = CoreShare(0);
  request.share = ShareClass::kBestEffort;
  EXPECT_EQ(to_human(request), "50% of the memory, besteffort");
  request.ceiling = CoreShare(50);
  EXPECT_EQ(to_human(request), "50% of the memory, compute 0 to 50, besteffort");
  request = legal();
  request.ceiling = CoreShare(60);
  EXPECT_EQ(to_human(request), "4 GiB, compute 30 to 60, burst");
  request = legal();
  request.compute = ComputeAsk::of_tflops(20);
  EXPECT_EQ(to_human(request), "4 GiB, compute 20 TFLOPS, burst");
  EXPECT_EQ(to_human(whole_cards(1)), "1 whole card");
  EXPECT_EQ(to_human(whole_cards(2)), "2 whole cards");
  EXPECT_EQ(to_human(std::vector<PartRequest>{{"a", Phase::kRun, legal()}, {"b", Phase::kRun, whole_cards(1)}}),
            "a: 4 GiB, compute 30, burst; b: 1 whole card");
}

TEST(Request, AModelMatchesAnySubstringInAnyCase) {
  for (const char* word : {"", "h200", "NVIDIA H200", "nvidia", "A H2"})
    EXPECT_TRUE(model_matches("NVIDIA H200", word)) << word;
  for (const char* word : {"h100", "H200 ", "NVIDIA H2000"}) EXPECT_FALSE(model_matches("NVIDIA H200", word)) << word;
  EXPECT_TRUE(model_matches("", ""));
  EXPECT_FALSE(model_matches("", "x"));
  for (const char* words : {"A100,H200", "h100,,h200", "!A100", "H200,!40GB", "!", ","})
    EXPECT_TRUE(model_matches("NVIDIA H200", words)) << words;
  for (const char* words : {"A100,H100", "!H200", "H200,!nvidia", "A100,!T4"})
    EXPECT_FALSE(model_matches("NVIDIA H200", words)) << words;
}

TEST(Names, HaveALimitedLengthAndAlphabet) {
  EXPECT_TRUE(valid_name("aZ_09.:/-"));
  EXPECT_TRUE(valid_name(std::string(253, 'a')));
  EXPECT_FALSE(valid_name(std::string(254, 'a')));
  EXPECT_FALSE(valid_name(""));
  for (const char* text : {"a b", "a\n", "a+b", "\xc3\xa9", "a\"", "a@"}) EXPECT_FALSE(valid_name(text)) << text;
}

TEST(Classes, ConvertToWordsAndBack) {
  for (const auto one : {ShareClass::kFixed, ShareClass::kBurst, ShareClass::kBestEffort, ShareClass::kNode})
    EXPECT_EQ(share_class_from(to_string(one)), one);
  for (const auto one : {PriorityClass::kOnline, PriorityClass::kStandard, PriorityClass::kOffline})
    EXPECT_EQ(priority_class_from(to_string(one)), one);
  for (const auto one : {OwnerKind::kPod, OwnerKind::kClaim, OwnerKind::kLocal})
    EXPECT_EQ(owner_kind_from(to_string(one)), one);
  EXPECT_EQ(share_class_from("Fixed"), std::nullopt);
  EXPECT_EQ(to_string(static_cast<ShareClass>(9)), "unknown");
}

Record record_of_one() {
  return {7,
          {OwnerKind::kPod, "u"},
          {{"c",
            Phase::kRun,
            false,
            false,
            ShareClass::kBurst,
            PriorityClass::kStandard,
            "native",
            {{CardId("GPU-1"), Bytes(1), CoreShare(1)}}}}};
}

std::vector<std::string> wrong_with(const std::function<void(Record&)>& change) {
  Record record = record_of_one();
  change(record);
  return texts(validate(record));
}

TEST(Record, IsLegalUpToItsLimits) {
  const auto parts = [](std::size_t count) {
    return wrong_with([&](Record& r) {
      r.parts.resize(count, r.parts.front());
      for (std::size_t i = 0; i < count; ++i) r.parts[i].part = "c" + std::to_string(i);
    });
  };
  EXPECT_THAT(parts(kMaxPartsPerRecord), IsEmpty());
  EXPECT_THAT(parts(kMaxPartsPerRecord + 1), ElementsAre(HasSubstr("parts: ")));
  EXPECT_THAT(parts(0), ElementsAre(HasSubstr("parts: 0 is not legal")));
  const auto cards = [](std::size_t count) {
    return wrong_with([&](Record& r) {
      auto& all = r.parts[0].cards;
      all.resize(count, all.front());
      for (std::size_t i = 0; i < count; ++i) all[i].card = CardId("GPU-" + std::to_string(i));
    });
  };
  EXPECT_THAT(cards(16), IsEmpty());
  EXPECT_THAT(cards(17), ElementsAre("part c: 17 cards is not legal; 1 to 16 are"));
  EXPECT_THAT(cards(0), ElementsAre("part c: 0 cards is not legal; 1 to 16 are"));
  const auto compute = [](std::uint32_t hundredths, ShareClass share) {
    return wrong_with([&](Record& r) {
      r.parts[0].share = share;
      r.parts[0].cards[0].compute = CoreShare(hundredths);
    });
  };
  EXPECT_THAT(compute(100, ShareClass::kBurst), IsEmpty());
  EXPECT_THAT(compute(0, ShareClass::kBestEffort), IsEmpty());
  EXPECT_THAT(compute(101, ShareClass::kBestEffort), ElementsAre(HasSubstr("compute 101 is not legal")));
  EXPECT_THAT(compute(0, ShareClass::kBurst), ElementsAre(HasSubstr("compute 0 is not legal")));
  const auto above = [](std::uint32_t hundredths) {
    return wrong_with([&](Record& r) {
      r.parts[0].ceiling = CoreShare(60);
      r.parts[0].cards[0].compute = CoreShare(hundredths);
    });
  };
  EXPECT_THAT(above(60), IsEmpty());
  EXPECT_THAT(above(61), ElementsAre(HasSubstr("compute 61 is above the ceiling, 60")));
  EXPECT_THAT(above(100), ElementsAre(HasSubstr("compute 100 is above the ceiling, 60")));
}

TEST(Record, EveryFaultIsReported) {
  EXPECT_THAT(wrong_with([](Record& r) { r.owner.uid = ""; }), ElementsAre(HasSubstr("owner: uid: ")));
  EXPECT_THAT(wrong_with([](Record& r) { r.parts[0].part = "a b"; }), ElementsAre(HasSubstr("part: 1 to 253")));
  EXPECT_THAT(wrong_with([](Record& r) { r.parts.push_back(r.parts[0]); }), ElementsAre("part c: named twice"));
  EXPECT_THAT(wrong_with([](Record& r) { r.parts[0].dialect = ""; }), ElementsAre(HasSubstr("part c: dialect: ")));
  EXPECT_THAT(wrong_with([](Record& r) { r.parts[0].whole = true; }),
              ElementsAre("part c: a whole card must be exclusive"));
  EXPECT_THAT(wrong_with([](Record& r) { r.parts[0].whole = r.parts[0].exclusive = true; }), IsEmpty());
  EXPECT_THAT(wrong_with([](Record& r) { r.parts[0].cards.push_back(r.parts[0].cards[0]); }),
              ElementsAre("part c: card GPU-1 is named twice"));
  EXPECT_THAT(wrong_with([](Record& r) { r.parts[0].cards[0].card = CardId(); }),
              ElementsAre(HasSubstr("part c: uuid: ")));
  EXPECT_THAT(wrong_with([](Record& r) { r.parts[0].cards[0].memory = Bytes(); }),
              ElementsAre("part c, card GPU-1: memory of 0 bytes is not legal; at least 1 byte is"));
}

TEST(Record, IsBuiltFromSlicesOfOneOwnerWithPartsOfOneClass) {
  const Record record = record_of_one();
  auto slices = slices_of(record);
  EXPECT_EQ(record_of(7, slices).value(), record);
  EXPECT_FALSE(record_of(7, {}));
  slices.push_back(slices[0]);
  slices[1].card = CardId("GPU-2");
  EXPECT_EQ(record_of(7, slices)->parts.size(), 1U);
  EXPECT_EQ(slices_of(*record_of(7, slices)), slices);
  slices[1].priority = PriorityClass::kOnline;
  EXPECT_THAT(record_of(7, slices).error().what, HasSubstr("part c differ in class"));
  slices[1] = slices[0];
  slices[1].owner.uid = "other";
  EXPECT_THAT(record_of(7, slices).error().what, HasSubstr("two owners, u and other"));
}

}  // namespace
}  // namespace carve
