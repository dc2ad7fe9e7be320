#include "core/claims/claim_steps.h"

#include <gmock/gmock.h>

#include <random>

namespace carve {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The API server's objects, and a controller that may die after any write.
struct Objects {
  ClaimWorld world;
  std::map<std::string, std::string> troubles;  // by card
  std::size_t pods = 0;
  Result<std::optional<CardPlace>> chosen = std::optional<CardPlace>({"n1", {CardId("GPU-a")}, Bytes::gib(16)});
  int version = 0;

  Objects() {
    world.place_of = [this](const ElasticGpu& gpu) -> std::optional<CardPlace> {
      CardPlace place{gpu.node, {}, Bytes::gib(16)};
      for (const std::string& card : gpu.cards) {
        if (!card.starts_with("GPU-")) return std::nullopt;
        place.cards.emplace_back(card);
        if (const auto trouble = troubles.find(card); trouble != troubles.end()) place.trouble = trouble->second;
      }
      return place;
    };
    world.has_room = [](const ElasticGpu&, const CardPlace&) { return true; };
    world.users = [this](const ElasticClaim&) { return pods; };
    world.choose = [this](const ElasticClaim&, const ElasticClass&, const Request&) { return chosen; };
    world.classes["c"] = {"c", "elasticgpu.io/qgpu"};
  }
  ElasticClaim& claim(const std::string& name = "k", std::uint64_t gib = 4) {
    ElasticClaim made;
    made.namespace_name = "s";
    made.name = name;
    made.uid = "uid-" + name;
    made.class_name = "c";
    made.request.memory = MemoryAsk::of(Bytes::gib(gib));
    made.request.compute = CoreShare(10);
    return world.claims[{"s", name}] = made;
  }
  ElasticGpu& gpu(const std::string& name, std::uint64_t gib) {
    ElasticGpu made;
    made.name = name;
    made.uid = "uid-" + name;
    made.node = "n1";
    made.cards = {"GPU-a"};
    made.request.memory = MemoryAsk::of(Bytes::gib(gib));
    made.request.compute = CoreShare(10);
    return world.gpus[name] = made;
  }
  void erase_if_free(const ElasticClaim& claim) {
    if (claim.deleting && !claim.is_protected) world.claims.erase({claim.namespace_name, claim.name});
  }
  void apply(const ClaimStep& step) {
    if (const auto* one = std::get_if<Protect>(&step)) {
      auto& stored = world.claims.at({one->claim.namespace_name, one->claim.name});
      stored.is_protected = one->on;
      erase_if_free(ElasticClaim(stored));
    } else if (const auto* created = std::get_if<CreateGpu>(&step)) {
      ElasticGpu made = created->gpu;
      made.uid = "uid-" + made.name;
      world.gpus.try_emplace(made.name, made);
    } else if (const auto* to_claim = std::get_if<ReferToClaim>(&step)) {
      world.gpus.at(to_claim->gpu.name).claim = to_claim->claim;
    } else if (const auto* to_gpu = std::get_if<ReferToGpu>(&step)) {
      world.claims.at({to_gpu->claim.namespace_name, to_gpu->claim.name}).gpu = to_gpu->gpu;
    } else if (const auto* gpu_status = std::get_if<SetGpuStatus>(&step)) {
      if (gpu_status->place) {
        world.gpus.at(gpu_status->gpu.name).shown_node = gpu_status->place->node;
        world.gpus.at(gpu_status->gpu.name).shown_cards = card_list(gpu_status->place->cards);
      }
      auto& stored = world.gpus.at(gpu_status->gpu.name);
      stored.phase = to_string(gpu_status->phase);
      stored.message = gpu_status->message;
    } else if (const auto* status = std::get_if<SetClaimStatus>(&step)) {
      auto& stored = world.claims.at({status->claim.namespace_name, status->claim.name});
      stored.phase = to_string(status->phase);
      stored.message = status->message;
    } else if (const auto* gone = std::get_if<DeleteGpu>(&step)) {
      world.gpus.erase(gone->gpu.name);
    }
  }
  /// Until nothing is due. The controller dies after each single write, and starts again from the objects.
  int settle() {
    for (int writes = 0; writes < 50; ++writes) {
      const auto due = claim_steps(world);
      if (due.empty()) return writes;
      apply(due.front());
    }
    ADD_FAILURE() << "the objects do not settle";
    return -1;
  }
  std::string phase(const std::string& name = "k") { return world.claims.at({"s", name}).phase; }
  std::string message(const std::string& name = "k") { return world.claims.at({"s", name}).message; }
};

TEST(ClaimSteps, AnImmediateClaimIsProvisionedAndBound) {
  Objects all;
  all.claim();
  all.settle();
  EXPECT_EQ(all.phase(), "Bound");
  const ElasticGpu& made = all.world.gpus.at("egpu-uid-k");
  EXPECT_EQ(made.phase, "Bound");
  EXPECT_EQ(made.class_name, all.world.claims.at({"s", "k"}).class_name);
  EXPECT_EQ(made.claim->uid, "uid-k");
  EXPECT_EQ(made.request.share, ShareClass::kNode) << "as the provisioner promises";
  EXPECT_EQ(all.world.claims.at({"s", "k"}).gpu, made.name);
  EXPECT_THAT(claim_steps(all.world), IsEmpty());
}

// 20 TFLOPS are 30 hundredths of an H200, and more than a T4 has.
TEST(ClaimSteps, AClaimForTflopsGetsThePartOfTheChosenCardsModel) {
  Objects all;
  all.claim().request.compute = ComputeAsk::of_tflops(20);
  all.chosen = CardPlace{"n1", {CardId("GPU-a")}, Bytes::gib(16), {}, "NVIDIA H200"};
  all.settle();
  EXPECT_EQ(all.world.gpus.at("egpu-uid-k").request.compute, ComputeAsk(CoreShare(30)));

  const ElasticGpu& made = all.world.gpus.at("egpu-uid-k");
  Request wanted = all.world.claims.at({"s", "k"}).request;
  EXPECT_TRUE(serves(made, wanted, Bytes::gib(16), "NVIDIA H200"));
  EXPECT_FALSE(serves(made, wanted, Bytes::gib(16), "Tesla T4")) << "30 hundredths of it are less";
  EXPECT_FALSE(serves(made, wanted, Bytes::gib(16), "another card"));
  wanted.compute = ComputeAsk::of_tflops(21);
  EXPECT_FALSE(serves(made, wanted, Bytes::gib(16), "NVIDIA H200"));
}

TEST(ClaimSteps, AClaimForSeveralCardsGetsOneElasticGpuWithAllOfThem) {
  Objects all;
  all.world.classes["c"].provisioner = "elasticgpu.io/physical";
  all.claim().request = whole_cards(2);
  all.gpu("one", 4).request = whole_cards(1);
  all.chosen = CardPlace{"n1", {CardId("GPU-b"), CardId("GPU-c")}, Bytes::gib(16)};
  all.settle();
  EXPECT_EQ(all.phase(), "Bound");
  EXPECT_EQ(all.world.gpus.at("one").phase, "Available") << "one card does not serve";
  const ElasticGpu& made = all.world.gpus.at("egpu-uid-k");
  EXPECT_EQ(made.cards, (std::vector<std::string>{"GPU-b", "GPU-c"}));
  EXPECT_EQ(made.shown_cards, "GPU-b,GPU-c");
  EXPECT_EQ(made.request.count, 2U);

  all.troubles["GPU-c"] = "card GPU-c is unhealthy: XID 79";
  all.settle();
  EXPECT_EQ(all.world.gpus.at("egpu-uid-k").phase, "Failed") << "one of its cards cannot be used";
  all.troubles.clear();
  all.settle();
  EXPECT_EQ(all.world.gpus.at("egpu-uid-k").phase, "Bound");
}

TEST(ClaimSteps, TheSmallestAvailableElasticGpuThatServesIsTaken) {
  Objects all;
  all.gpu("large", 8);
  all.gpu("fits", 4);
  all.gpu("small", 2);
  all.settle();
  EXPECT_EQ(all.world.gpus.at("large").phase, "Available");
  all.claim();
  all.settle();
  EXPECT_EQ(all.world.claims.at({"s", "k"}).gpu, "fits");
  EXPECT_EQ(all.world.gpus.at("fits").phase, "Bound");
  all.claim("second", 4);
  all.settle();
  EXPECT_EQ(all.world.claims.at({"s", "second"}).gpu, "large");
}

TEST(ClaimSteps, AnElasticGpuReservedByNameServesOnlyThatClaim) {
  Objects all;
  all.gpu("kept", 4).claim = ElasticClaimRef{"s", "mine", ""};
  all.settle();
  all.claim("other");
  all.claim("mine");
  all.settle();
  EXPECT_EQ(all.world.claims.at({"s", "mine"}).gpu, "kept");
  EXPECT_EQ(all.world.claims.at({"s", "other"}).gpu, "egpu-uid-other");
}

TEST(ClaimSteps, AClaimIsProtectedWhilePodsUseIt) {
  Objects all;
  all.claim();
  all.settle();
  EXPECT_FALSE(all.world.claims.at({"s", "k"}).is_protected) << "an unused claim can be deleted without control";
  all.pods = 1;
  all.settle();
  all.world.claims.at({"s", "k"}).deleting = true;
  EXPECT_EQ(all.settle(), 0) << "a pod uses it";
  EXPECT_EQ(all.world.gpus.at("egpu-uid-k").phase, "Bound");
  all.pods = 0;
  all.settle();
  EXPECT_THAT(all.world.claims, IsEmpty());
  EXPECT_THAT(all.world.gpus, IsEmpty()) << "reclaim policy Delete";
}

TEST(ClaimSteps, RetainKeepsTheElasticGpuUntilItsReferenceIsCleared) {
  Objects all;
  all.world.classes["c"].retain = true;
  all.claim();
  all.settle();
  all.world.claims.erase({"s", "k"});
  all.settle();
  ElasticGpu& kept = all.world.gpus.at("egpu-uid-k");
  EXPECT_EQ(kept.phase, "Released");
  all.claim("next");
  all.settle();
  EXPECT_NE(all.world.claims.at({"s", "next"}).gpu, kept.name) << "not reusable yet";
  kept.claim.reset();
  all.settle();
  EXPECT_EQ(kept.phase, "Available");
}

TEST(ClaimSteps, AClaimWithoutItsElasticGpuIsLost) {
  Objects all;
  all.claim();
  all.settle();
  const ElasticGpu gone = all.world.gpus.at("egpu-uid-k");
  all.world.gpus.clear();
  all.settle();
  EXPECT_EQ(all.phase(), "Lost");
  EXPECT_EQ(all.message(), "ElasticGPU egpu-uid-k does not exist");
  all.world.gpus[gone.name] = gone;
  all.world.gpus[gone.name].claim->uid = "other";
  all.settle();
  EXPECT_EQ(all.message(), all.world.gpus.empty() ? "ElasticGPU egpu-uid-k does not exist"
                                                  : "ElasticGPU egpu-uid-k belongs to another claim");
}

TEST(ClaimSteps, AnUnhealthyCardFailsAndComesBack) {
  Objects all;
  all.claim();
  all.settle();
  all.troubles["GPU-a"] = "card GPU-a is unhealthy: XID 79";
  all.settle();
  EXPECT_EQ(all.world.gpus.at("egpu-uid-k").phase, "Failed");
  EXPECT_EQ(all.world.gpus.at("egpu-uid-k").message, "card GPU-a is unhealthy: XID 79");
  all.troubles.clear();
  all.settle();
  EXPECT_EQ(all.world.gpus.at("egpu-uid-k").phase, "Bound");
}

TEST(ClaimSteps, WhatCannotBeBoundSaysWhy) {
  const auto why = [](const std::function<void(Objects&)>& change) {
    Objects all;
    all.claim();
    change(all);
    all.settle();
    EXPECT_EQ(all.phase(), "Pending");
    return all.message();
  };
  EXPECT_EQ(why([](Objects& all) { all.world.classes.clear(); }), "class c does not exist");
  EXPECT_EQ(why([](Objects& all) { all.world.claims.at({"s", "k"}).class_name = ""; }), "it names no class");
  EXPECT_EQ(why([](Objects& all) { all.world.classes["c"].error = "reclaimPolicy: \"x\""; }),
            "class c: reclaimPolicy: \"x\"");
  EXPECT_THAT(why([](Objects& all) { all.world.classes["c"].provisioner = "elasticgpu.io/qcpu"; }),
              HasSubstr("provisioner \"elasticgpu.io/qcpu\" does not exist; legal are elasticgpu.io/qgpu, "));
  for (const char* name : {"mig", "vgpu", "remote"})
    EXPECT_THAT(why([&](Objects& all) { all.world.classes["c"].provisioner = std::string("elasticgpu.io/") + name; }),
                HasSubstr("not supported yet"));
  EXPECT_EQ(why([](Objects& all) {
              all.world.claims.at({"s", "k"}).error = "spec.resources.requests: none";
            }),
            "spec.resources.requests: none");
  EXPECT_EQ(why([](Objects& all) { all.chosen = fail(Code::kResourceExhausted, "no room"); }), "no room");
  EXPECT_EQ(why([](Objects& all) {
              all.world.classes["c"].waits = true;
              all.chosen = std::optional<CardPlace>();
            }),
            "waits for the first pod that uses it");
}

TEST(Provisioners, ByBothForms) {
  EXPECT_EQ(provisioner_named("elasticgpu.io/cgpu")->name, "cgpu");
  EXPECT_EQ(provisioner_named("gpushare.provisioner.elasticgpu.io")->name, "gpushare");
  EXPECT_EQ(provisioner_named("qgpu"), nullptr);
  EXPECT_EQ(provisioner_named("example.com/qgpu"), nullptr);
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(4));
  request.compute = CoreShare(30);
  ElasticClass by;
  const auto share = [&](const char* name) { return request_by(*provisioner_named(name), by, request).share; };
  EXPECT_EQ(share("elasticgpu.io/gpushare"), ShareClass::kBestEffort);
  const Request physical = request_by(*provisioner_named("elasticgpu.io/physical"), by, request);
  EXPECT_TRUE(physical.whole);
  EXPECT_EQ(physical.dialect, provisioner_named("elasticgpu.io/physical")->dialect);
  by.enforced = true;
  EXPECT_EQ(share("elasticgpu.io/gpushare"), ShareClass::kFixed) << "one field of the class";
  request.whole = true;
  EXPECT_EQ(request_by(*provisioner_named("elasticgpu.io/gpushare"), by, request).dialect, "gpushare");
}

}  // namespace
}  // namespace carve
