#include "app/cli/views.h"

#include <gtest/gtest.h>

#include "app/cli/table.h"

namespace carve::cli {
namespace {

AgentView example() {
  AgentView view;
  view.gpu_state = "ok";
  view.arbiter_state = "ok";
  view.driver_version = "580.1";
  CardView card;
  card.card.id = CardId("GPU-1");
  card.card.model = "NVIDIA H200";
  card.card.memory = Bytes::gib(140);
  card.set_aside = Bytes::gib(4);
  card.guaranteed = CoreShare(30);
  card.foreign.push_back({99, "xorg", "GPU-1", Bytes::mib(20), 1, false});
  view.cards.push_back(card);
  SliceView slice;
  slice.id = "run-1";
  slice.kind = "run";
  slice.name = "train.py";
  slice.state = "running";
  slice.cards.push_back({"GPU-1", Bytes::gib(4), Bytes::gib(3), Bytes::gib(3), CoreShare(30), 29.7});
  slice.processes.push_back({7, "python", "GPU-1", Bytes::gib(3), 30, true});
  view.slices.push_back(slice);
  return view;
}

TEST(Views, InspectShowsGrantedAndFreeCapacity) {
  const auto text = render_inspect(example());
  EXPECT_NE(text.find("4 GiB granted of 140 GiB, 136 GiB free"), std::string::npos) << text;
  EXPECT_NE(text.find("30 guaranteed of 100, 70 free"), std::string::npos);
  EXPECT_NE(text.find("train.py"), std::string::npos);
  EXPECT_NE(text.find("outside any slice: process 99"), std::string::npos);
}

TEST(Views, InspectSaysWhatTheLimitRefused) {
  auto view = example();
  view.slices[0].cards[0].counters = SliceCounters{};
  EXPECT_EQ(render_inspect(view).find("refused"), std::string::npos);
  view.slices[0].cards[0].counters->refused_requests = 3;
  view.slices[0].cards[0].counters->refused_bytes = Bytes::gib(4).count();
  EXPECT_NE(render_inspect(view).find("  slice run-1: its memory limit refused 3 requests for 4 GiB in all\n"),
            std::string::npos);
}

TEST(Views, TopShowsLimitsNextToUse) {
  const auto text = render_top(example());
  EXPECT_NE(text.find("3 GiB / 4 GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("29.7 %"), std::string::npos);
  EXPECT_NE(text.find("foreign"), std::string::npos);
}

TEST(Views, WithoutCardsInspectSaysWhy) {
  AgentView view;
  view.gpu_state = "absent";
  view.gpu_reason = "no driver library";
  EXPECT_NE(render_inspect(view).find("no cards (NVML absent: no driver library)"), std::string::npos);
}

TEST(Table, AlignsColumnsByCharacters) {
  EXPECT_EQ(aligned({{"A", "B"}, {"xx", "1"}, {"°", "22"}}, {1}, ""), "A    B\nxx   1\n°   22\n");
  EXPECT_EQ(bar(0.5, 4), "██░░");
  EXPECT_EQ(clipped("abcdef", 4), "abc…");
}

}  // namespace
}  // namespace carve::cli
