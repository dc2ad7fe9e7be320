#include "adapter/api/gpu_manager.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

namespace carve::api {
namespace {

AgentView two_cards() {
  AgentView view;
  for (int i = 0; i < 2; ++i) {
    CardView card;
    card.card.id = CardId("GPU-" + std::to_string(i));
    card.pci_bus_id = "00000000:0" + std::to_string(i) + ":00.0";
    view.cards.push_back(card);
  }
  return view;
}

SliceView slice(const std::string& name, const std::string& owner) {
  SliceView one;
  one.kind = "pod";
  one.name = name;
  one.owner = owner;
  return one;
}

TEST(GpuManagerUsage, ContainersByTheUidOfTheirPod) {
  auto view = two_cards();
  auto main = slice("ml/train/main", "u-1");
  main.cards = {{"GPU-0", Bytes::gib(4), Bytes::mib(512), {}, CoreShare(30), 12.5, 0},
                {"GPU-1", Bytes::gib(4), Bytes::max(), {}, CoreShare(30), 0, 0}};
  auto side = slice("ml/train/side", "u-1");
  side.cards = {{"GPU-1", Bytes::gib(1), Bytes(), {}, CoreShare(0), 1, 0}};
  auto claim = slice("ml/train/gpu", "u-2");
  claim.kind = "claim";
  view.slices = {main, side, claim, slice("python", "")};
  EXPECT_EQ(gpu_manager_usage(view),
            R"({"usage":{"u-1":{"stat":{)"
            R"("main":{"dev":[{"id":"00000000:00:00.0","card_idx":"0","gpu":1.25E1,"mem":5.12E2},)"
            R"({"id":"00000000:01:00.0","card_idx":"1"}]},)"
            R"("side":{"dev":[{"id":"00000000:01:00.0","card_idx":"1","gpu":1E0}]}},"project":"ml",)"
            R"("spec":{"main":{"gpu":6E-1,"mem":8.192E3},"side":{"mem":1.024E3}}}}})");
}

TEST(GpuManagerUsage, WithoutPodsItIsEmpty) {
  EXPECT_EQ(gpu_manager_usage(two_cards()), "{}");
  auto view = two_cards();
  view.slices = {slice("ml/train/main", "u-1")};
  view.slices[0].cards = {{"GPU-gone", Bytes::gib(1), Bytes(), {}, CoreShare(10), 0, 0}};
  EXPECT_EQ(gpu_manager_usage(view), R"({"usage":{"u-1":{"stat":{"main":{"dev":[]}},"project":"ml",)"
                                     R"("spec":{"main":{"gpu":1E-1,"mem":1.024E3}}}}})");
}

/// A field of the file, as a reader in C finds it.
template <typename Number>
Number number_in(const std::string& file, std::size_t at) {
  Number number = 0;
  std::memcpy(&number, file.data() + at, sizeof(number));
  return number;
}
std::string text_in(const std::string& file, std::size_t at) { return file.c_str() + at; }

TEST(GpuManagerConfig, HasEachFieldAtItsOffset) {
  auto view = two_cards();
  view.driver_version = "570.124.06";
  auto main = slice("ml/train/main", "11111111-2222-4333-8444-555555555555");
  main.ceiling = CoreShare(60);
  main.cards = {{"GPU-1", Bytes::gib(4), Bytes(), {}, CoreShare(30), 0, 0}};
  view.slices = {main};
  const auto file = gpu_manager_config(view, "11111111-2222-4333-8444-555555555555", "main");
  ASSERT_TRUE(file);
  ASSERT_EQ(file->size(), 8240U);
  EXPECT_EQ(text_in(*file, 0), "11111111-2222-4333-8444-555555555555");
  EXPECT_EQ(number_in<std::int32_t>(*file, 48), 60) << "the limit above the guarantee";
  EXPECT_EQ(text_in(*file, 4096), "main");
  EXPECT_EQ(text_in(*file, 8192), "00000000:01:00.");  // 16 bytes with the ending 0, as gpu-manager has it
  EXPECT_EQ(number_in<std::uint64_t>(*file, 8208), Bytes::gib(4).count());
  EXPECT_EQ(number_in<std::int32_t>(*file, 8216), 30);
  EXPECT_EQ(number_in<std::int32_t>(*file, 8220), 0) << "soft";
  EXPECT_EQ(number_in<std::int32_t>(*file, 8224), 570);
  EXPECT_EQ(number_in<std::int32_t>(*file, 8228), 124);
  EXPECT_EQ(number_in<std::int32_t>(*file, 8232), 1);
}

TEST(GpuManagerConfig, AWholeCardIsNotLimitedAndAGuaranteeAloneIsHard) {
  auto view = two_cards();
  view.slices = {slice("ml/train/main", "u-1"), slice("ml/train/side", "u-1")};
  view.slices[0].cards = {{"GPU-0", Bytes::gib(16), Bytes(), {}, CoreShare(100), 0, 0}};
  view.slices[1].cards = {{"GPU-gone", Bytes::gib(1), Bytes(), {}, CoreShare(10), 0, 0}};
  EXPECT_EQ(number_in<std::int32_t>(*gpu_manager_config(view, "u-1", "main"), 8232), 0);
  const auto side = *gpu_manager_config(view, "u-1", "side");
  EXPECT_EQ(number_in<std::int32_t>(side, 8220), 1);
  EXPECT_EQ(number_in<std::int32_t>(side, 48), 0);
  EXPECT_EQ(text_in(side, 8192), "") << "its card is gone";
  EXPECT_FALSE(gpu_manager_config(view, "u-1", "other"));
  EXPECT_FALSE(gpu_manager_config(view, "u-2", "main"));
}

TEST(GpuManagerConfig, ANameThatIsTooLongIsCut) {
  auto view = two_cards();
  const std::string uid(100, 'u');
  view.slices = {slice("ml/train/main", uid)};
  view.slices[0].cards = {{"GPU-0", Bytes::gib(1), Bytes(), {}, CoreShare(10), 0, 0}};
  const auto file = *gpu_manager_config(view, uid, "main");
  EXPECT_EQ(text_in(file, 0), std::string(47, 'u'));
  EXPECT_EQ(number_in<std::int32_t>(file, 48), 0);
}

AgentView cards_at(const std::vector<std::pair<std::string, int>>& places) {
  AgentView view;
  for (const auto& [root, numa] : places) {
    CardView card;
    card.card.memory = Bytes(100);
    card.card.pcie_root = root;
    card.card.numa_node = numa;
    view.cards.push_back(card);
  }
  return view;
}

/// One line as JSON has it.
std::string row(const std::string& start, int used, int total, int cores, int memory) {
  return fmt::format(R"({}pids: [], usedMemory: {}, totalMemory: {}, allocatableCores: {}, allocatableMemory: {})\n)",
                     start, used, total, cores, memory);
}

TEST(GpuManagerGraph, JoinsCardsByRootComplexNumaNodeAndMachine) {
  auto view = cards_at({{"0000:17", 0}, {"0000:17", 0}, {"0000:3a", 0}, {"0000:85", 1}});
  view.cards[0].used = Bytes(7);
  view.cards[0].set_aside = Bytes(40);
  view.cards[0].guaranteed = CoreShare(30);
  view.cards[2].exclusive = true;
  view.cards[2].used = Bytes::max();
  EXPECT_EQ(gpu_manager_graph(view), R"({"graph":"ROOT:2\n)" +
                                         row("|---SYS (aval: 2, ", 7, 400, 0, 0) +
                                         row("|   |---GPU3 (", 0, 100, 100, 100) +
                                         row("|   |---CPU (aval: 1, ", 7, 300, 0, 0) +
                                         row("|   |   |---GPU2 (", 0, 100, 0, 0) +
                                         row("|   |   |---PHB (aval: 1, ", 7, 200, 0, 0) +
                                         row("|   |   |   |---GPU0 (", 7, 100, 70, 60) +
                                         row("|   |   |   |---GPU1 (", 0, 100, 100, 100) + R"("})");
}

TEST(GpuManagerGraph, ACardAloneIsBelowTheRoot) {
  EXPECT_EQ(gpu_manager_graph({}), R"({"graph":"ROOT:0\n"})");
  EXPECT_EQ(gpu_manager_graph(cards_at({{"", -1}})),
            R"({"graph":"ROOT:1\n)" + row("|---GPU0 (", 0, 100, 100, 100) + R"("})");
  const auto unknown = gpu_manager_graph(cards_at({{"", -1}, {"", -1}}));
  EXPECT_EQ(unknown.find("PHB"), std::string::npos) << "an unknown root complex joins no cards";
  EXPECT_NE(unknown.find("|---SYS (aval: 2"), std::string::npos);
}

}  // namespace
}  // namespace carve::api
