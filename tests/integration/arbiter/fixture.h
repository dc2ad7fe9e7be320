#pragma once

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "adapter/arbiter/arbiter_client.h"
#include "tests/integration/arbiter/raw_client.h"

namespace carve::arbiter_test {

inline constexpr std::uint64_t kMs = 1'000'000;

/// The real arbiter in its own process, and the agent's real client.
class ArbiterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root: the arbiter mounts its tmpfs";
    runtime_ = make_runtime();
    ASSERT_FALSE(runtime_.empty()) << std::strerror(errno);
    arbiter_.emplace(runtime_, trace());
    agent_.emplace(runtime_ + "/arbiter/control");
    ASSERT_TRUE(eventually([&] { return agent_->list().has_value(); }));
  }
  void TearDown() override {
    arbiter_.reset();
    if (runtime_.empty()) return;
    umount2((runtime_ + "/arbiter/pages").c_str(), MNT_DETACH);
    std::filesystem::remove_all(runtime_);
  }
  virtual std::string trace() { return ""; }

  PageOrder order(const std::string& id, std::uint32_t compute = 50, ShareClass share = ShareClass::kBurst,
                  int cards = 1) {
    PageOrder order;
    order.id = id;
    for (int i = 0; i < cards; ++i) {
      Slice slice;
      slice.card = CardId("GPU-" + std::to_string(i));
      slice.memory = Bytes::gib(4);
      slice.compute = CoreShare(compute);
      slice.share = share;
      order.slices.push_back(slice);
      order.context_bytes.push_back(Bytes::mib(400));
    }
    return order;
  }
  void put(const PageOrder& wanted) {
    const auto done = agent_->put(wanted);
    ASSERT_TRUE(done) << done.error().what;
  }
  RawClient connect(const std::string& id, abi::LibraryKind kind = abi::LibraryKind::kCuda) {
    auto client = hello(runtime_, id, kind);
    EXPECT_TRUE(client.has_value()) << "no reply to the hello";
    return client ? std::move(*client) : RawClient{};
  }
  std::optional<PageSlice> listed(const std::string& id) {
    auto all = agent_->list();
    if (!all) return std::nullopt;
    for (auto& slice : *all) {
      if (slice.id == id) return slice;
    }
    return std::nullopt;
  }

  std::string runtime_;
  std::optional<ArbiterChild> arbiter_;
  std::optional<arbiter::ArbiterClient> agent_;
};

}  // namespace carve::arbiter_test
