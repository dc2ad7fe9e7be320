#include "app/cli/slice_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

NodeView node(const std::string& name, const std::vector<std::pair<std::string, double>>& slices) {
  AgentView view;
  for (const auto& [slice, delivered] : slices) {
    SliceView one;
    one.id = "id-" + slice;
    one.name = slice;
    one.state = "running";
    SliceCardView held;
    held.card = "GPU-1";
    held.limit = Bytes::gib(4);
    held.used = Bytes::gib(static_cast<std::uint64_t>(delivered / 10));
    held.compute = CoreShare(30);
    held.delivered_percent = delivered;
    one.cards.push_back(held);
    view.slices.push_back(one);
  }
  return {name, view, {}};
}

std::size_t at(const std::string& text, const std::string& word) { return text.find(word); }

TEST(SliceTable, SortsOverAllNodes) {
  const std::vector<NodeView> nodes = {node("n1", {{"a", 10}, {"c", 90}}), node("n2", {{"b", 50}})};
  auto text = SliceTable(SortSlices::kDelivered, "").render(nodes);
  EXPECT_LT(at(text, " c "), at(text, " b "));
  EXPECT_LT(at(text, " b "), at(text, " a "));
  text = SliceTable(SortSlices::kName, "").render(nodes);
  EXPECT_LT(at(text, " a "), at(text, " b "));
  EXPECT_LT(at(text, " b "), at(text, " c "));
  text = SliceTable(SortSlices::kNode, "").render(nodes);
  EXPECT_LT(at(text, " c "), at(text, " b "));
}

TEST(SliceTable, FiltersByAllWords) {
  const std::vector<NodeView> nodes = {node("n1", {{"ml/a", 10}, {"web/c", 90}}), node("n2", {{"ml/b", 50}})};
  const auto text = SliceTable(SortSlices::kName, "ml n2").render(nodes);
  EXPECT_THAT(text, HasSubstr("ml/b"));
  EXPECT_THAT(text, Not(HasSubstr("ml/a")));
  EXPECT_THAT(text, Not(HasSubstr("web/c")));
}

TEST(SliceTable, TheTrendGrowsWithEachCall) {
  SliceTable table(SortSlices::kName, "");
  EXPECT_THAT(table.render({node("n1", {{"a", 0}})}), ContainsRegex("0.0 %  ▁ "));
  EXPECT_THAT(table.render({node("n1", {{"a", 100}})}), ContainsRegex("100.0 %  ▁█ "));
  for (int more = 0; more < 50; ++more) static_cast<void>(table.render({node("n1", {{"a", 100}})}));
  const auto text = table.render({node("n1", {{"a", 100}})});
  std::size_t full = 0;
  for (auto where = text.find("█"); where != std::string::npos; where = text.find("█", where + 1)) ++full;
  EXPECT_EQ(full, SliceTable::kTrend);
}

TEST(SliceTable, NamesNodesThatDoNotAnswer) {
  EXPECT_THAT(SliceTable(SortSlices::kName, "").render({{"n3", std::nullopt, "pod x does not answer"}}),
              HasSubstr("n3: pod x does not answer"));
}

TEST(SliceTable, WritesRowsForPrograms) {
  EXPECT_THAT(SliceTable(SortSlices::kName, "").csv({node("n1", {{"=a", 10}})}),
              HasSubstr("\nn1,GPU-1,id-=a,'=a,4294967296,1073741824,30,10.0,burst,standard,running\n"));
}

TEST(SliceTable, KnowsItsWords) {
  SortSlices sort = SortSlices::kName;
  for (const char* word : {"name", "used", "limit", "delivered", "node"}) {
    EXPECT_TRUE(sort_from(word, &sort)) << word;
    EXPECT_THAT(std::string(kSortWords), HasSubstr(word));
  }
  EXPECT_FALSE(sort_from("size", &sort));
}

}  // namespace
}  // namespace carve::cli
