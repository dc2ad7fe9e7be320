#include "codec/node/plugin_conflict.h"

#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using Names = std::vector<std::string>;

TEST(PluginConflict, TheNamesAreReadBackFromTheMessage) {
  const auto words = conflict_words("nvidia.com/gpu", 8);
  EXPECT_EQ(words, "another device plugin serves nvidia.com/gpu on this node (8 devices)");
  EXPECT_EQ(conflict_words("a", 1), "another device plugin serves a on this node (1 devices)");
  EXPECT_EQ(conflict_words("a", 0),
            "another device plugin serves a on this node (no device any more; the kubelet forgets it after "
            "five minutes)");
  EXPECT_EQ(names_in_conflict(words), Names{"nvidia.com/gpu"});
  EXPECT_EQ(names_in_conflict(conflict_words("nvidia.com/gpu", 0)), Names{"nvidia.com/gpu"})
      << "the kubelet still has the name";
  EXPECT_EQ(names_in_conflict(words + "; " + conflict_words("aliyun.com/gpu-mem", 1) + "; pods that ask for it"),
            (Names{"nvidia.com/gpu", "aliyun.com/gpu-mem"}));
}

TEST(PluginConflict, OtherMessagesHaveNoNames) {
  for (const char* odd :
       {"", "another device plugin serves ", "another device plugin serves x", "serves x on this node (",
        "another device plugin serves x and y on this node (2 devices)"})
    EXPECT_EQ(names_in_conflict(odd), Names()) << odd;
}

}  // namespace
}  // namespace carve::codec
