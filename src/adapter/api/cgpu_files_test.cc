#include "adapter/api/cgpu_files.h"

#include <gtest/gtest.h>

namespace carve::api {
namespace {

AgentView view_with_a_pod() {
  AgentView view;
  view.version = "1.2.3";
  for (const auto* id : {"GPU-0", "GPU-1"}) {
    CardView card;
    card.card.id = CardId(id);
    view.cards.push_back(card);
  }
  SliceView pod;
  pod.kind = "pod";
  pod.name = "ml/train-0/main";
  pod.cards = {{"GPU-1", Bytes::gib(4), Bytes::gib(1), {}, CoreShare(30), 0, 0}};
  SliceView local;
  local.kind = "run";
  local.name = "python";
  local.cards = pod.cards;
  view.slices = {local, pod};
  return view;
}

TEST(CgpuFiles, ListsWhatCanBeRead) {
  EXPECT_EQ(cgpu_file(view_with_a_pod(), ""),
            "0/max_inst\n0/policy\n1/max_inst\n1/ml_train-0_main/id\n1/ml_train-0_main/meminfo\n"
            "1/ml_train-0_main/memsize\n1/policy\nversion\n");
}

TEST(CgpuFiles, HaveTheNumbersOfTheContainer) {
  const auto view = view_with_a_pod();
  EXPECT_EQ(cgpu_file(view, "version"), "1.2.3\n");
  EXPECT_EQ(cgpu_file(view, "1/ml_train-0_main/id"), "0\n");
  EXPECT_EQ(cgpu_file(view, "1/ml_train-0_main/memsize"), "4294967296\n");
  EXPECT_EQ(cgpu_file(view, "1/ml_train-0_main/meminfo"), "Free: 3221225472\n");
  for (const auto* path : {"2/policy", "0/ml_train-0_main/id", "1/", "1", "default_memsize", "../version", "/version"})
    EXPECT_FALSE(cgpu_file(view, path)) << path;
}

TEST(CgpuFiles, MeminfoWithoutTheDriversFigureAndOverTheLimit) {
  auto view = view_with_a_pod();
  view.slices[1].cards[0].used = Bytes::max();
  EXPECT_EQ(cgpu_file(view, "1/ml_train-0_main/meminfo"), "Free: 4294967296\n");
  view.slices[1].cards[0].used = Bytes::gib(5);
  EXPECT_EQ(cgpu_file(view, "1/ml_train-0_main/meminfo"), "Free: 0\n");
}

TEST(CgpuFiles, EachPolicyHasCgpusNumber) {
  auto view = view_with_a_pod();
  EXPECT_EQ(cgpu_file(view, "0/policy"), "4\n") << "burst, unless a policy is set";
  for (const auto& [word, number] : {std::pair("fixed", "3\n"), {"equal", "1\n"}, {"even-4", "0\n"}}) {
    view.share_policies.cards[CardId("GPU-0")] = *share_policy_from(word);
    EXPECT_EQ(cgpu_file(view, "0/policy"), number) << word;
  }
  EXPECT_EQ(cgpu_file(view, "0/max_inst"), "4\n");
  EXPECT_EQ(cgpu_file(view, "1/max_inst"), "128\n");
  view.share_policies.dialects["cgpu"] = *share_policy_from("3");
  EXPECT_EQ(cgpu_file(view, "1/policy"), "3\n");
}

}  // namespace
}  // namespace carve::api
