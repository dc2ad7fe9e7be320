#include "app/control/api/settings_refused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/control/api/metrics.h"
#include "codec/cluster/notes.h"
#include "port/testing/fake_kube_api.h"

namespace carve::control {
namespace {

using ::testing::HasSubstr;

const Error kWhy{Code::kInvalidArgument, "cluster.conf:1: dors: unknown key"};

// `kubectl describe configmap` selects events by the object's UID.
TEST(SettingsRefused, EventCarriesTheConfigMapsUid) {
  carve::testing::FakeKubeApi api;
  const auto made =
      api.put("/api/v1/namespaces/gpus/configmaps/carve-cluster", R"({"data":{"cluster.conf":"dors ="}})");
  const auto uid = codec::read_object_name(made).uid;
  ASSERT_FALSE(uid.empty());
  const auto note = settings_refused(api, "gpus", kWhy);
  EXPECT_EQ(note.uid, uid);
  EXPECT_EQ(note.kind, "ConfigMap");
  EXPECT_EQ(note.namespace_name, "gpus");
  EXPECT_EQ(note.name, "carve-cluster");
  EXPECT_TRUE(note.warning);
  EXPECT_THAT(note.message, HasSubstr("dors: unknown key"));
}

TEST(SettingsRefused, EventIsCreatedWithoutTheConfigMap) {
  carve::testing::FakeKubeApi api;
  const auto note = settings_refused(api, "gpus", kWhy);
  EXPECT_EQ(note.uid, "");
  EXPECT_EQ(note.name, "carve-cluster");
}

TEST(SettingsRefused, AreExposedAsAGauge) {
  codec::MetricsText text;
  write_settings(false, &text);
  EXPECT_THAT(text.text(), HasSubstr("\ncarve_control_settings_good 0\n"));
}

}  // namespace
}  // namespace carve::control
