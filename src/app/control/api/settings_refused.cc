#include "app/control/api/settings_refused.h"

#include "codec/cluster/notes.h"

namespace carve::control {

codec::EventNote settings_refused(KubeApi& api, const std::string& namespace_name, const Error& why) {
  const auto object = api.get("/api/v1/namespaces/" + namespace_name + "/configmaps/" + kClusterConfigMap);
  return {"ConfigMap",
          namespace_name,
          kClusterConfigMap,
          object ? codec::read_object_name(*object).uid : std::string(),
          "SettingsRefused",
          "invalid settings: control and agents keep the previous ones, but cannot restart: " + why.what};
}

}  // namespace carve::control
