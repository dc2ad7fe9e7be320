#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sim/testing/instance.h"

namespace carve::sim {

/// Starts one simulated driver before the first test of a binary and stops it after the last:
///   const auto* const kSim = ::testing::AddGlobalTestEnvironment(new InstanceEnvironment("h200x2"));
class InstanceEnvironment : public ::testing::Environment {
 public:
  explicit InstanceEnvironment(std::string profile) : profile_(std::move(profile)) {}
  void SetUp() override {
    const std::string error = instance_.start(profile_);
    ASSERT_TRUE(error.empty()) << error;
    Instance::export_libraries();
  }
  void TearDown() override { instance_.stop(); }
  Instance& instance() { return instance_; }

 private:
  std::string profile_;
  Instance instance_;
};

}  // namespace carve::sim
