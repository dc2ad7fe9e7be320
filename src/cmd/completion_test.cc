#include "cmd/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::cmd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<CompletionNode> kNodes = {
    {"slice create", {"--memory"}},
    {"slice", {"create", "list"}},
    {"top", {"--once", "--sort"}},
    {"", {"slice", "top"}}};

TEST(PluginCompletions, OffersTheWordsOfTheCommandSoFar) {
  EXPECT_EQ(plugin_completions(kNodes, {""}), "slice\ntop\n:4\n");
  EXPECT_EQ(plugin_completions(kNodes, {"t"}), "top\n:4\n");
  EXPECT_EQ(plugin_completions(kNodes, {"top", "--s"}), "--sort\n:4\n");
  EXPECT_EQ(plugin_completions(kNodes, {"top", "--once", ""}), "--once\n--sort\n:4\n");
  EXPECT_EQ(plugin_completions(kNodes, {"slice", "create", "--"}), "--memory\n:4\n");
  EXPECT_EQ(plugin_completions(kNodes, {"nothing", "x"}), ":4\n");
  EXPECT_EQ(plugin_completions(kNodes, {}), "slice\ntop\n:4\n");
}

TEST(CompletionScript, IsForKnownShells) {
  EXPECT_THAT(completion_script("bash", kNodes), HasSubstr("complete -o default -F _carve carve"));
  EXPECT_THAT(completion_script("bash", kNodes), Not(HasSubstr("bashcompinit &&")));
  EXPECT_EQ(completion_script("fish", kNodes), "");
}

}  // namespace
}  // namespace carve::cmd
