#include "codec/keeper/words.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace carve::codec {
namespace {

TEST(KeeperWords, AreReadBackAsWritten) {
  const std::vector<KeeperWord> keeper = {AskAllocate{17, {"slot-0001", "slot-1023"}}, AskStart{1ULL << 63U, {"x"}},
                                          AskAlive{3}, TellListening{true}, TellListening{false}, TellClosed{}};
  for (const auto& word : keeper) {
    const auto read = decode_keeper_word(encode(word));
    ASSERT_TRUE(read) << encode(word) << ": " << read.error().what;
    EXPECT_EQ(*read, word) << encode(word);
  }
  const std::vector<AgentWord> agent = {SayServing{},
                                        SayList{true, {{"slot-0001", true}, {"slot-0002", false}}},
                                        SayList{false, {}},
                                        AnswerAllocated{17, "carve.elasticgpu.io/slice=a-1"},
                                        AnswerStart{18},
                                        AnswerRefused{19, Code::kAborted, "two\nlines: 1 of 2"},
                                        AnswerRefused{20, Code::kUnavailable, ""},
                                        AnswerAlive{3},
                                        SayLeft{}};
  for (const auto& word : agent) {
    const auto read = decode_agent_word(encode(word));
    ASSERT_TRUE(read) << encode(word) << ": " << read.error().what;
    EXPECT_EQ(*read, word) << encode(word);
  }
}

TEST(KeeperWords, AListOfAllSlotsFitsIntoAPacket) {
  SayList list{true, {}};
  for (int i = 0; i < 1024; ++i) list.slots.push_back({std::string(59, 'x') + std::to_string(1000 + i), true});
  const auto packet = encode(AgentWord(list));
  EXPECT_LT(packet.size(), 128U << 10U);  // a socket's buffer takes 208 KiB
  EXPECT_EQ(decode_agent_word(packet).value(), AgentWord(list));
}

TEST(KeeperWords, OtherPacketsAreRefused) {
  for (const char* packet :
       {"", " ", "allocate", "allocate 1", "allocate 1\n", "allocate 1\nslot", "allocate 1\n\n", "allocate x\na\n",
        "allocate 1 2\na\n", "allocate 1\na b\n", "allocate -1\na\n", "allocate 99999999999999999999\na\n",
        "start\na\n", "alive? ", "alive?", "alive? 1\n", "listening 2", "listening", "closed 1", "closed\n",
        "serving"}) {
    const auto read = decode_keeper_word(packet);
    ASSERT_FALSE(read) << packet;
    EXPECT_EQ(read.error().code, Code::kInvalidArgument);
  }
  for (const char* packet :
       {"", "list", "list 1", "list 2\n", "list 1\nslot\n", "list 1\n+\n", "list 1\n+a", "list 1\n+a b\n",
        "allocated 1", "allocated 1\n", "allocated 1\na\nb", "started", "started 1 2", "refused 1\nx",
        "refused 1 0\nx", "refused 1 17\nx", "refused 1 14", "alive", "left 1", "closed", "serving 1", "serving "}) {
    EXPECT_FALSE(decode_agent_word(packet)) << packet;
  }
}

TEST(KeeperWords, ASlotNameMustFitALine) {
  EXPECT_TRUE(is_slot_name("slot-0001"));
  EXPECT_TRUE(is_slot_name(std::string(63, 'x')));
  for (const auto& name : {std::string(), std::string(64, 'x'), std::string("a\nb"), std::string("a b"),
                           std::string("\xc3\xa4"), std::string(1, '\0')})
    EXPECT_FALSE(is_slot_name(name)) << name;
}

TEST(KeeperWords, AllPrintableCharactersAreLegalInASlotName) {
  for (int code = 0; code < 256; ++code)
    EXPECT_EQ(is_slot_name(std::string(1, static_cast<char>(code))), code > 0x20 && code < 0x7f) << code;
}

TEST(KeeperWords, APacketHasALimitedNumberOfSlots) {
  const auto list = [](std::size_t count) {
    std::string packet = "list 1\n";
    for (std::size_t i = 0; i < count; ++i) packet += "+s\n";
    return decode_agent_word(packet).has_value();
  };
  EXPECT_TRUE(list(4096));
  EXPECT_FALSE(list(4097));
}

TEST(KeeperWords, AMessageHasAFixedNumberOfNumbers) {
  EXPECT_TRUE(decode_agent_word("refused 1 1\nx"));
  EXPECT_TRUE(decode_agent_word("refused 1 16\nx"));
  for (const char* packet :
       {"refused 1 2 3\nx", "refused 1 2 3 4\nx", "alive 1 2 3 4", "alive  1", "alive 1x", "alive x1"})
    EXPECT_FALSE(decode_agent_word(packet)) << packet;
}

TEST(KeeperWords, AFaultyPacketIsQuotedUpToALimit) {
  const auto quoted = [](const std::string& packet) {
    const auto what = decode_agent_word(packet).error().what;
    return std::count(what.begin(), what.end(), 'q');
  };
  EXPECT_EQ(quoted(std::string(100, 'q')), 64);
  EXPECT_EQ(quoted("alive " + std::string(100, 'q')), 64 - 6);
}

TEST(KeeperWords, DefaultsDescribeASilentPeer) {
  EXPECT_EQ(AskAllocate().number + AskStart().number + AskAlive().number, 0U);
  EXPECT_EQ(AnswerAllocated().number + AnswerStart().number + AnswerRefused().number + AnswerAlive().number, 0U);
  EXPECT_FALSE(TellListening().listening);
  EXPECT_FALSE(SayList().settled);
  EXPECT_TRUE(KeptSlot().healthy);
}

}  // namespace
}  // namespace carve::codec
