#include "codec/views/board.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace carve::codec {
namespace {

BoardCard card(const std::string& model, std::uint64_t memory, std::uint64_t granted, std::uint32_t slices) {
  BoardCard one;
  one.model = model;
  one.memory = Bytes::gib(memory);
  one.granted = Bytes::gib(granted);
  one.free = Bytes::gib(memory - granted);
  one.cores_free = slices == 0 ? 100 : 40;
  one.slices = slices;
  return one;
}

TEST(BoardModels, AddUpTheCardsOfEachModel) {
  Board board;
  board.cards = {card("T4", 16, 4, 1), card("T4", 16, 0, 0), card("H200", 141, 0, 0)};
  board.cards[1].healthy = false;
  const auto models = models_of(board);
  ASSERT_EQ(models.size(), 2U);
  const auto& h200 = models[0];
  const auto& t4 = models[1];
  EXPECT_EQ(h200.model, "H200");
  EXPECT_EQ(t4.model, "T4");
  EXPECT_EQ(t4.cards, 2U);
  EXPECT_EQ(t4.unhealthy, 1U);
  EXPECT_EQ(t4.empty, 0U) << "an unhealthy card is not empty";
  EXPECT_EQ(h200.empty, 1U);
  EXPECT_EQ(t4.memory, Bytes::gib(32));
  EXPECT_EQ(t4.granted, Bytes::gib(4));
  EXPECT_EQ(t4.free, Bytes::gib(28));
  EXPECT_EQ(t4.cores_free, 140U);
}

TEST(BoardModels, CountWhatStillFits) {
  Board board;
  for (int at = 0; at < 2; ++at) {
    board.cards.push_back(card("H200", 8, 4, 1));
    board.cards.back().cores_free = 50;
  }
  const auto models = models_of(board);
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].largest_memory, Bytes::gib(4));
  EXPECT_EQ(models[0].largest_cores, 50U);
  EXPECT_EQ(models[0].shapes[0].fit, 0U) << "no whole card is free";
  EXPECT_EQ(models[0].shapes[0].in_one_piece, 1U) << "but two halves are";
  EXPECT_EQ(models[0].shapes[1].fit, 2U);
  EXPECT_EQ(models[0].shapes[2].fit, 4U);
  EXPECT_EQ(models[0].empty, 0U);
  board.cards = {card("H200", 8, 0, 0)};
  board.cards[0].cores_free = 99;
  EXPECT_EQ(models_of(board)[0].shapes[0].fit, 0U) << "not a whole card";
}

TEST(BoardNamespaces, AddUpTheirSlicesAndWaitingPods) {
  Board board;
  for (const bool known : {true, false}) {
    BoardSlice& slice = board.slices.emplace_back();
    slice.namespace_name = "red";
    slice.memory = Bytes::gib(4);
    slice.cores = 30;
    if (known) slice.used = Bytes::gib(1);
    if (known) slice.delivered_percent = 20;
  }
  for (const char* name : {"red", "blue", "blue"}) board.waiting.emplace_back().namespace_name = name;
  const auto all = namespaces_of(board);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "blue");
  EXPECT_EQ(std::pair(all[0].slices, all[0].waiting), std::pair(std::uint64_t{0}, std::uint64_t{2}));
  const BoardNamespace& red = all[1];
  EXPECT_EQ(std::pair(red.slices, red.waiting), std::pair(std::uint64_t{2}, std::uint64_t{1}));
  EXPECT_EQ(std::pair(red.memory, red.used), std::pair(Bytes::gib(8), Bytes::gib(1)));
  EXPECT_EQ(red.cores, 60U);
  EXPECT_DOUBLE_EQ(red.delivered_percent, 20);
  EXPECT_EQ(red.unknown, 1U);
}

TEST(BoardNodes, AddUpTheirCards) {
  Board board;
  for (const char* name : {"n1", "n2"}) board.nodes.emplace_back().name = name;
  board.cards = {card("T4", 16, 4, 1), card("T4", 16, 8, 2), card("H200", 141, 1, 3), card("T4", 16, 0, 0)};
  for (auto& one : board.cards) {
    one.node = "n1";
    one.cores = 100;
    one.cores_granted = 30;
    one.used = Bytes::gib(1);
    one.delivered_percent = 10;
  }
  board.cards[0].healthy = false;
  board.cards[3].node = "another";
  sum_nodes(&board);
  const BoardNode& n1 = board.nodes[0];
  EXPECT_EQ(std::tuple(n1.cards, n1.unhealthy, n1.slices), std::tuple(3U, 1U, 6U));
  EXPECT_EQ(n1.models, (std::vector<std::string>{"T4", "H200"}));
  EXPECT_EQ(n1.memory, Bytes::gib(173));
  EXPECT_EQ(n1.granted, Bytes::gib(13));
  EXPECT_EQ(std::pair(n1.cores, n1.cores_granted), std::pair(300U, 90U));
  EXPECT_EQ(n1.used, Bytes::gib(3));
  EXPECT_EQ(n1.delivered_percent, 30);
  EXPECT_EQ(board.nodes[1].cards, 0U);
  EXPECT_EQ(board.nodes[1].used, Bytes());
  board.cards[1].used = std::nullopt;
  sum_nodes(&board);
  EXPECT_EQ(board.nodes[0].used, std::nullopt) << "the use of one card is unknown";
  EXPECT_EQ(std::tuple(board.nodes[0].cards, board.nodes[0].memory, board.nodes[0].granted, board.nodes[0].cores),
            std::tuple(3U, Bytes::gib(173), Bytes::gib(13), 300U))
      << "summed again, not twice";
  EXPECT_EQ(board.nodes[0].models.size(), 2U);
}

// Every figure differs, so a figure in another's place is noticed.
TEST(BoardJson, Golden) {
  Board board;
  board.scope = "cluster";
  board.notice = "notice";
  BoardCard& one = board.cards.emplace_back();
  one.uuid = "GPU-1";
  one.node = "n1";
  one.index = 3;
  one.model = "T4";
  one.driver = "580.1";
  one.healthy = false;
  one.reason = "reason";
  one.closed = "closed";
  one.mode = "shared";
  one.memory = Bytes(101);
  one.granted = Bytes(102);
  one.free = Bytes(103);
  one.cores = 11;
  one.cores_granted = 12;
  one.cores_free = 13;
  one.used = Bytes(104);
  one.delivered_percent = 14.26;
  one.utilization_percent = 15;
  one.temperature_c = 16;
  one.power_w = 17;
  one.slices = 18;
  one.foreign = 19;
  board.cards.push_back(card("T4", 16, 4, 1));
  board.cards.back().uuid = "GPU-2";
  BoardSlice& slice = board.slices.emplace_back();
  slice.id = "id";
  slice.node = "n1";
  slice.card = "GPU-1";
  slice.namespace_name = "team";
  slice.pod = "pod";
  slice.container = "container";
  slice.name = "name";
  slice.kind = "kind";
  slice.agent_id = "agent";
  slice.memory = Bytes(201);
  slice.cores = 21;
  slice.core_limit = 22;
  slice.whole = true;
  slice.share = "burst";
  slice.priority = "online";
  slice.dialect = "native";
  slice.state = "running";
  slice.used = Bytes(202);
  slice.delivered_percent = 23;
  slice.processes = 24;
  BoardNode& node = board.nodes.emplace_back();
  node.name = "n1";
  node.answers = true;
  node.error = "error";
  sum_nodes(&board);
  board.waiting.push_back({});
  board.waiting[0].namespace_name = "team";
  board.waiting[0].name = "waiting";
  board.waiting[0].asks = "asks";
  board.waiting[0].why = "why";
  board.events.push_back({1, "n1", "team", "kind", "Pod/p", "text"});
  BoardChange change{.revision = 7, .complete = true, .nodes = {}, .cards = {}, .slices = {}, .gone_nodes = {"a"},
                     .gone_cards = {"b"}, .gone_slices = {"c"}};
  for (const auto& each : board.nodes) change.nodes.push_back(&each);
  for (const auto& each : board.cards) change.cards.push_back(&each);
  for (const auto& each : board.slices) change.slices.push_back(&each);
  EXPECT_EQ(change_json(board, change),
            R"({"revision":7,"complete":true,"scope":"cluster","notice":"notice","nodes":[{"name":"n1",)"
            R"("answers":true,"error":"error","cards":1,"unhealthy":1,"slices":18,"models":["T4"],"memory_bytes":{)"
            R"("total":101,"granted":102,"used":104},"cores":{"total":11,"granted":12,"delivered":1.43E1}}],)"
            R"("cards":[{"uuid":"GPU-1","node":"n1","index":3,"model":"T4","driver_version":"580.1",)"
            R"("healthy":false,"reason":"reason","closed":"closed","mode":"shared","memory_bytes":{"total":101,)"
            R"("granted":102,"free":103,"used":104},"cores":{"total":11,"granted":12,"free":13,"delivered":1.43E1},)"
            R"("utilization_percent":15,"temperature_celsius":16,"power_watts":17,"slices":18,)"
            R"("foreign_processes":19},{"uuid":"GPU-2","node":"","index":0,"model":"T4","driver_version":"",)"
            R"("healthy":true,"reason":"","closed":"","mode":"","memory_bytes":{"total":17179869184,)"
            R"("granted":4294967296,"free":12884901888,"used":null},"cores":{"total":100,"granted":0,"free":40,)"
            R"("delivered":null},"utilization_percent":null,"temperature_celsius":null,"power_watts":null,)"
            R"("slices":1,"foreign_processes":0}],"slices":[{"id":"id","node":"n1","card":"GPU-1",)"
            R"("namespace":"team","pod":"pod","container":"container","name":"name","kind":"kind",)"
            R"("agent_id":"agent","memory_bytes":{"limit":201,"used":202},"cores":{"guaranteed":21,"limit":22,)"
            R"("delivered":2.3E1},"whole":true,"share":"burst","priority":"online","dialect":"native",)"
            R"("state":"running","processes":24}],"gone":{"nodes":["a"],"cards":["b"],"slices":["c"]},"totals":{)"
            R"("nodes":1,"cards":2,"unhealthy":1,"slices":1,"waiting":1,"cards_with_unknown_use":1,"memory_bytes":{)"
            R"("total":17179869285,"granted":4294967398,"free":12884901991,"used":104},"cores":{"total":111,)"
            R"("granted":12,"free":53,"delivered":1.43E1}},"models":[{"model":"T4","cards":2,"unhealthy":1,)"
            R"("empty":0,"memory_bytes":{"total":17179869285,"granted":4294967398,"free":12884901991,)"
            R"("largest_request":12884901888},"cores":{"free":53,"largest_request":40},"shapes":[{"parts":1,)"
            R"("fit":0,"in_one_piece":0},{"parts":2,"fit":0,"in_one_piece":1},{"parts":4,"fit":1,)"
            R"("in_one_piece":2},{"parts":8,"fit":4,"in_one_piece":4}]}],"namespaces":[{"name":"team","slices":1,)"
            R"("waiting":1,"slices_with_unknown_use":0,"memory_bytes":{"granted":201,"used":202},"cores":{)"
            R"("granted":21,"delivered":2.3E1}}],"waiting":[{"namespace":"team","name":"waiting","asks":"asks",)"
            R"("why":"why"}],"events":[{"unix_ms":1,"node":"n1","namespace":"team","kind":"kind","slice":"Pod/p",)"
            R"("text":"text"}]})");
  const auto summary = boost::json::parse(summary_json(board, 8));
  EXPECT_EQ(summary.at("revision"), 8);
  for (const char* part : {"scope", "notice", "totals", "models", "namespaces"})
    EXPECT_EQ(summary.at(part), boost::json::parse(change_json(board, change)).at(part)) << part;
}

TEST(BoardPages, ContinueWhereTheLastOneEnded) {
  std::vector<WaitingPod> pods(5);
  std::vector<const WaitingPod*> items;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    pods[i].namespace_name = "s";
    pods[i].name = "p" + std::to_string(i);
    items.push_back(&pods[i]);
  }
  std::string seen;
  std::string after;
  for (int pages = 0; pages < 4; ++pages) {
    const auto text = page_json(items, 7, {after, 2});
    ASSERT_TRUE(text);
    const auto page = boost::json::parse(*text);
    EXPECT_EQ(page.at("revision"), 7);
    EXPECT_EQ(page.at("total"), 5);
    EXPECT_LE(page.at("items").as_array().size(), 2U);
    for (const auto& item : page.at("items").as_array()) seen += std::string(item.at("name").as_string()) + " ";
    after = std::string(page.at("continue").as_string());
    if (after.empty()) break;
  }
  EXPECT_EQ(seen, "p0 p1 p2 p3 p4 ");
  EXPECT_EQ(boost::json::parse(*page_json(items, 7, {"", 5})).at("continue"), "");
  EXPECT_FALSE(page_json(items, 7, {"p1", 2}));
}

TEST(BoardChanges, HaveWaitingPodsAndEventsWhereTheseChanged) {
  Board board;
  board.waiting.emplace_back().name = "p";
  board.events.emplace_back().text = "e";
  for (const bool complete : {false, true}) {
    for (const bool rest : {false, true}) {
      BoardChange change;
      change.complete = complete;
      change.rest = rest;
      const auto text = boost::json::parse(change_json(board, change));
      EXPECT_EQ(text.as_object().contains("waiting"), complete || rest);
      EXPECT_EQ(text.as_object().contains("events"), complete || rest);
      EXPECT_EQ(text.at("complete"), complete);
    }
  }
}

TEST(BoardEvents, BelongToTheNamespaceOfTheirObject) {
  const auto of_pod = parse_board_event(
      R"({"reason":"R","message":"m","involvedObject":{"kind":"Pod","name":"p","namespace":"team"},)"
      R"("source":{"host":"n1"},"lastTimestamp":"1970-01-01T00:00:02Z"})");
  ASSERT_TRUE(of_pod);
  EXPECT_EQ(std::tuple(of_pod->kind, of_pod->text, of_pod->node, of_pod->unix_ms), std::tuple("R", "m", "n1", 2000));
  EXPECT_EQ(of_pod->namespace_name, "team");
  EXPECT_EQ(of_pod->slice, "Pod/p");
  // The API server stores events of nodes in the namespace default; not every reader of that namespace may see them.
  const auto of_node = parse_board_event(
      R"({"reason":"R","message":"m","involvedObject":{"kind":"Node","name":"n1","namespace":"default"}})");
  ASSERT_TRUE(of_node);
  EXPECT_EQ(of_node->namespace_name, "");
}

}  // namespace
}  // namespace carve::codec
