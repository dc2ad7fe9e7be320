#include "app/node/compat_metrics.h"

#include <gmock/gmock.h>

#include <cmath>

namespace carve::node {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Two cards: one with a container of a pod, one with a container that uses both.
AgentView two_cards() {
  AgentView view;
  for (int i = 0; i < 2; ++i) {
    CardView card;
    card.card.id = CardId("GPU-" + std::to_string(i));
    card.card.model = "NVIDIA T4";
    card.card.memory = Bytes::gib(16);
    card.card.minor = i + 3;
    card.used = Bytes::gib(2);
    card.utilization_percent = 45;
    card.temperature_c = 61;
    card.power_mw = 70'500;
    view.cards.push_back(card);
  }
  view.cards[0].sm_clock_mhz = 1590;
  view.cards[0].memory_busy_percent = 12;
  view.cards[0].energy_mj = 5'000'000;
  view.cards[0].activity = {0.5, 0.4, 0.25, std::nullopt};
  view.cards[1].last_xid = 79;
  SliceView one;
  one.name = "ml/train-0/main";
  one.cards.push_back({"GPU-0", Bytes::gib(4), Bytes::mib(512), {}, CoreShare(40), 30, 0});
  SliceView two;
  two.name = "ml/train-1/main";
  two.cards.push_back({"GPU-0", Bytes::gib(2), Bytes::mib(1024), {}, CoreShare(20), 15, 0});
  two.cards.push_back({"GPU-1", Bytes::gib(2), Bytes::mib(256), {}, CoreShare(20), 5, 0});
  SliceView local;
  local.name = "python";
  local.cards.push_back({"GPU-1", Bytes::gib(1), Bytes::mib(1), {}, CoreShare(5), 1, 0});
  view.slices = {one, two, local};
  return view;
}

std::string text_at(std::string_view path, const AgentView& view = two_cards()) {
  for (const auto& row : compat_metrics()) {
    if (row.path == path) return row.text(view, "n1");
  }
  return {};
}

TEST(CompatMetrics, DcgmHasOneSeriesPerContainerOrCard) {
  const auto text = text_at("/metrics/dcgm");
  const auto labels = [](const char* gpu, const char* uuid, const char* device, const char* pod) {
    return std::string(R"({gpu=")") + gpu + R"(",UUID=")" + uuid + R"(",device=")" + device +
           R"(",modelName="NVIDIA T4",Hostname="n1",container=")" + (*pod != 0 ? "main" : "") + R"(",namespace=")" +
           (*pod != 0 ? "ml" : "") + R"(",pod=")" + pod + R"("} )";
  };
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_FB_USED" + labels("0", "GPU-0", "nvidia3", "train-0") + "512\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_FB_FREE" + labels("0", "GPU-0", "nvidia3", "train-0") + "3584\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_GPU_UTIL" + labels("1", "GPU-1", "nvidia4", "train-1") + "5\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_GPU_TEMP" + labels("1", "GPU-1", "nvidia4", "") + "61\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_POWER_USAGE" + labels("0", "GPU-0", "nvidia3", "") + "70.5\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_SM_CLOCK" + labels("0", "GPU-0", "nvidia3", "") + "1590\n"));
  EXPECT_THAT(text, Not(HasSubstr("DCGM_FI_DEV_SM_CLOCK" + labels("1", "GPU-1", "nvidia4", "")))) << "not reported";
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_MEM_COPY_UTIL" + labels("0", "GPU-0", "nvidia3", "") + "12\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"));
  EXPECT_THAT(text,
              HasSubstr("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" + labels("0", "GPU-0", "nvidia3", "") + "5000000\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_PROF_GR_ENGINE_ACTIVE" + labels("0", "GPU-0", "nvidia3", "") + "0.5\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_PROF_SM_ACTIVE" + labels("0", "GPU-0", "nvidia3", "") + "0.4\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" + labels("0", "GPU-0", "nvidia3", "") + "0.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("DCGM_FI_PROF_DRAM_ACTIVE{"))) << "the driver reports it for no card";
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_XID_ERRORS" + labels("1", "GPU-1", "nvidia4", "") + "79\n"));
  auto idle = two_cards();
  idle.slices.clear();
  EXPECT_THAT(text_at("/metrics/dcgm", idle),
              HasSubstr("DCGM_FI_DEV_FB_USED" + labels("0", "GPU-0", "nvidia3", "") + "2048\n"));
}

TEST(CompatMetrics, Hami) {
  const auto text = text_at("/metrics/hami");
  const std::string card = R"({node="n1",device_index="1",device_uuid="GPU-1",device_type="NVIDIA T4"} )";
  const std::string slice = R"({namespace="ml",pod="train-1",container="main",vdevice_index="1",device_uuid="GPU-1"} )";
  EXPECT_THAT(text, HasSubstr("hami_host_gpu_memory_used_bytes" + card + "2147483648\n"));
  EXPECT_THAT(text, HasSubstr("hami_host_gpu_utilization_ratio" + card + "45\n"));
  EXPECT_THAT(text, HasSubstr("hami_vgpu_memory_used_bytes" + slice + "268435456\n"));
  EXPECT_THAT(text, HasSubstr("hami_vgpu_memory_limit_bytes" + slice + "2147483648\n"));
  EXPECT_THAT(text, HasSubstr("hami_container_device_memory_bytes" + slice + "268435456\n"));
  EXPECT_THAT(text, HasSubstr("hami_container_device_utilization_ratio" + slice + "5\n"));
  EXPECT_THAT(text, Not(HasSubstr("python"))) << "not a slice of a pod";
}

TEST(CompatMetrics, GpuManagerPerCardAndInTotal) {
  const auto text = text_at("/metric");
  EXPECT_EQ(text, text_at("/metrics/gpu-manager"));
  const auto labels = [](const char* last) {
    return std::string(R"({pod_name="train-1",namespace="ml",node="n1",container_name="main",)") + last + "} ";
  };
  EXPECT_THAT(text, HasSubstr("container_gpu_utilization" + labels(R"(gpu="gpu0")") + "15\n"));
  EXPECT_THAT(text, HasSubstr("container_gpu_utilization" + labels(R"(gpu="total")") + "20\n"));
  EXPECT_THAT(text, HasSubstr("container_gpu_memory_total" + labels(R"(gpu_memory="gpu1")") + "256\n"));
  EXPECT_THAT(text, HasSubstr("container_gpu_memory_total" + labels(R"(gpu_memory="total")") + "1280\n"));
  EXPECT_THAT(text, HasSubstr("container_request_gpu_utilization" + labels(R"(req_of_gpu="total")") + "0.4\n"));
  EXPECT_THAT(text, HasSubstr("container_request_gpu_memory" + labels(R"(req_of_gpu_memory="total")") + "4096\n"));
}

TEST(CompatMetrics, ElasticGpuPerCardPodAndContainer) {
  const auto text = text_at("/metrics/elastic-gpu");
  EXPECT_THAT(text, HasSubstr(R"(gpu_core_usage{node="n1",card="1"} 45)"));
  EXPECT_THAT(text, HasSubstr(R"(gpu_mem_utilization{node="n1",card="0"} 12.5)"));
  const std::string pod = R"({node="n1",namespace="ml",pod="train-1"} )";
  EXPECT_THAT(text, HasSubstr("pod_core_usage" + pod + "20\n"));
  EXPECT_THAT(text, HasSubstr("pod_core_utilization" + pod + "50\n"));
  EXPECT_THAT(text, HasSubstr("pod_mem_usage" + pod + "1280\n"));
  EXPECT_THAT(text, HasSubstr("pod_core_occupy_node" + pod + "10\n"));
  EXPECT_THAT(text, HasSubstr("pod_mem_occupy_node" + pod + "3.90625\n"));
  EXPECT_THAT(text, HasSubstr("pod_mem_request" + pod + "4096\n"));
  EXPECT_THAT(text,
              HasSubstr(R"(container_mem_utilization{node="n1",namespace="ml",pod="train-0",container="main"} 12.5)"));
}

TEST(CompatMetrics, WhatTheDriverDoesNotReportIsNotZero) {
  auto view = two_cards();
  view.cards[0].used = Bytes::max();
  view.slices[0].cards[0].used = Bytes::max();
  EXPECT_THAT(text_at("/metrics/hami", view), HasSubstr("device_uuid=\"GPU-0\",device_type=\"NVIDIA T4\"} NaN\n"));
  const auto dcgm = text_at("/metrics/dcgm", view);
  EXPECT_THAT(dcgm, Not(HasSubstr("NaN")));
  EXPECT_THAT(dcgm, Not(::testing::ContainsRegex("FB_USED[{][^}]*train-0")));
  EXPECT_THAT(dcgm, ::testing::ContainsRegex("FB_USED[{][^}]*train-1"));
}

}  // namespace
}  // namespace carve::node
