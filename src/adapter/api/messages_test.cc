#include "adapter/api/messages.h"

#include <gtest/gtest.h>

namespace carve::api {
namespace {

ApiRequest example() {
  ApiRequest message;
  message.op = Op::kAllocate;
  Request& r = message.allocate.request;
  r.count = 2;
  r.memory = MemoryAsk::of(Bytes::gib(4));
  r.compute = CoreShare(30);
  r.share = ShareClass::kFixed;
  r.priority = PriorityClass::kOnline;
  r.constraints.model = "h200";
  r.constraints.cards = {CardId("GPU-1"), CardId("GPU-2")};
  message.allocate.policy = "spread";
  message.allocate.wait = std::chrono::seconds(60);
  message.allocate.name = "train.py";
  return message;
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ApiMessages, RequestsSurviveEncodingAndDecoding) {
  const auto back = decode_request(encode_request(example()));
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(back->allocate.request, example().allocate.request);
  EXPECT_EQ(back->allocate.wait, std::chrono::seconds(60));
  EXPECT_EQ(back->allocate.policy, "spread");
  EXPECT_EQ(back->allocate.name, "train.py");
  ApiRequest release;
  release.op = Op::kRelease;
  release.slice = "run-1";
  release.kill = true;
  const auto second = decode_request(encode_request(release));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->slice, "run-1");
  EXPECT_TRUE(second->kill);
}

TEST(ApiMessages, RefusesInvalidInputWithTheNameOfTheMember) {
  const std::string good = encode_request(example());
  struct Row {
    std::string bytes, expected;
  };
  const Row rows[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "not an object"},
      {"{}", "\"v\": missing"},
      {R"({"v":2,"op":"view"})", "version 2"},
      {R"({"v":1,"op":"destroy"})", "\"op\": not one of"},
      {R"({"v":1,"op":"view","x":1})", "\"x\": unknown"},
      {R"({"v":1,"op":"release","slice":"a"})", "\"kill\": missing"},
      {R"({"v":1,"op":"join","slice":7})", "\"slice\": not a string"},
      {with(good, "\"count\":2", "\"count\":0"), "\"count\": 0 is not between 1 and 16"},
      {with(good, "\"count\":2", "\"count\":-1"), "\"count\": not a non-negative integer"},
      {with(good, "\"compute\":30", "\"compute\":101"), "\"compute\": 101"},
      {with(good, "\"memory_bytes\":4294967296", "\"memory_bytes\":0"), "\"memory_bytes\": 0"},
      {with(good, "\"memory_bytes\":4294967296", "\"memory_percent\":101"), "\"memory_percent\": 101"},
      {with(good, "\"fixed\"", "\"FIXED\""), "\"share\": not one of fixed, burst or besteffort"},
      {with(good, "\"online\"", "\"root\""), "\"priority\": not one of"},
      {with(good, "\"whole\":false", "\"whole\":0"), "\"whole\": neither true nor false"},
      {with(good, "\"keep\":false", "\"keep\":false,\"keeep\":1"), "\"keeep\": unknown"},
      {with(good, "[\"GPU-1\",\"GPU-2\"]", "\"GPU-1\""), "\"cards\": not a list"},
      {std::string(100, '['), "not JSON"},
  };
  for (const auto& row : rows) {
    const auto decoded = decode_request(row.bytes);
    ASSERT_FALSE(decoded) << row.bytes;
    EXPECT_NE(decoded.error().what.find(row.expected), std::string::npos)
        << row.bytes << "\n  error: " << decoded.error().what;
  }
}

TEST(ApiMessages, AHistoryIsAskedForAndAnswered) {
  ApiRequest request;
  request.op = Op::kHistory;
  request.history.by = HistoryQuery::By::kNamespaces;
  request.history.card = "GPU-1";
  request.history.since = std::chrono::hours(24);
  request.history.points = 7;
  const auto asked = decode_request(encode_request(request));
  ASSERT_TRUE(asked) << asked.error().what;
  EXPECT_EQ(asked->op, Op::kHistory);
  EXPECT_EQ(asked->history.by, HistoryQuery::By::kNamespaces);
  EXPECT_EQ(asked->history.card, "GPU-1");
  EXPECT_EQ(asked->history.since, std::chrono::hours(24));
  EXPECT_EQ(asked->history.points, 7U);
  const auto wrong = [](const std::string& text) { return decode_request(text).error().what; };
  const std::string good = encode_request(request);
  EXPECT_NE(wrong(with(good, "\"namespaces\"", "\"nodes\"")).find("\"by\": not one of"), std::string::npos);
  EXPECT_NE(wrong(with(good, "\"points\":7", "\"points\":0")).find("\"points\": 0"), std::string::npos);
  EXPECT_NE(wrong(with(good, "86400", "0")).find("\"since_seconds\": 0"), std::string::npos);

  HistoryAnswer answer;
  answer.step_seconds = 10;
  answer.intervals = 1;
  answer.first_unix_seconds = 100;
  HistorySample sample;
  sample.seconds = 10;
  sample.granted = Bytes::gib(4);
  answer.lines.push_back({{"GPU-1", "", ""}, {sample}});
  const auto back = decode_history_reply(encode_reply(Result<HistoryAnswer>(answer)));
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(back->lines[0].values, answer.lines[0].values);
}

TEST(ApiMessages, ViewsSurviveEncodingAndDecoding) {
  AgentView view;
  view.version = "0.1.0";
  view.gpu_state = "ok";
  view.state_folder = "/srv/carve";
  view.device_folder = "/srv/cdi";
  CardView card;
  card.card.id = CardId("GPU-1");
  card.card.memory = Bytes::gib(141);
  card.foreign.push_back({12, "python", "GPU-1", Bytes::gib(1), 50, false});
  card.xids = {{31, 2}, {79, 1}};
  card.last_xid = 31;
  card.sm_clock_mhz = 1590;
  view.cards.push_back(card);
  SliceView slice;
  slice.id = "run-1";
  slice.share = ShareClass::kFixed;
  slice.cards.push_back({"GPU-1", Bytes::gib(4), Bytes(), Bytes(), CoreShare(30), 29.5, 7});
  slice.cards[0].counters = SliceCounters{{1, 2, 3, 4, 5, 6, 7}, 8, 9, 10, 11, 12};
  slice.processes.push_back({13, "train", "GPU-1", Bytes::max(), 29, true});
  view.slices.push_back(slice);
  view.events.push_back({1'700'000'000'000, "breach-memory", "run-1", "killed"});
  const std::string bytes = encode_reply(Result<AgentView>(view));
  const auto back = decode_view_reply(bytes);
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(encode_reply(Result<AgentView>(*back)), bytes);
  EXPECT_EQ(back->slices[0].processes[0].memory, Bytes::max());
  EXPECT_EQ(back->slices[0].cards[0].rescues, 7U);
  ASSERT_TRUE(back->slices[0].cards[0].counters);
  EXPECT_EQ(back->slices[0].cards[0].counters->waits[6], 7U);
  EXPECT_EQ(back->slices[0].cards[0].counters->refused_bytes, 12U);
  EXPECT_EQ(back->cards[0].xids, view.cards[0].xids);
  EXPECT_EQ(back->cards[0].sm_clock_mhz, 1590U);
  EXPECT_EQ(back->state_folder + back->device_folder, "/srv/carve/srv/cdi");
  EXPECT_NE(to_json(view).find("\"delivered_percent\": "), std::string::npos);
}

/// Adds `"more":7` as the first member of every object.
std::string with_more(std::string text) {
  for (std::size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    text.insert(at + 1, text[at + 1] == '}' ? R"("more":7)" : R"("more":7,)");
  }
  return text;
}

/// This program displays the members of a newer agent's view that it knows. It refuses a grant with an unknown member.
TEST(ApiMessages, IgnoresUnknownMembersInViewsAndRefusesThemInGrants) {
  AgentView view;
  view.version = "9.0.0";
  view.cards.emplace_back().card.id = CardId("GPU-1");
  view.cards.back().foreign.emplace_back().pid = 7;
  view.slices.emplace_back().id = "run-1";
  view.slices.back().cards.emplace_back().card = "GPU-1";
  view.events.push_back({1, "kind", "run-1", "words"});
  const auto shown = view_of_json(with_more(to_json(view)));
  ASSERT_TRUE(shown) << shown.error().what;
  EXPECT_EQ(to_json(*shown), to_json(view));
  Grant grant;
  grant.slice = "run-1";
  const std::string good = encode_reply(Result<Grant>(grant));
  ASSERT_TRUE(decode_grant_reply(good));
  const auto at = good.find("\"slice\"");
  const auto more = decode_grant_reply(good.substr(0, at) + "\"more\":7," + good.substr(at));
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().what.find("\"more\": unknown"), std::string::npos) << more.error().what;
}

TEST(ApiMessages, ErrorsKeepTheirCodeAndText) {
  const auto back =
      decode_grant_reply(encode_reply(Result<Grant>(fail(Code::kResourceExhausted, "2 cards: \"full\""))));
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().code, Code::kResourceExhausted);
  EXPECT_EQ(back.error().what, "2 cards: \"full\"");
}

}  // namespace
}  // namespace carve::api
