#include "codec/host/engine_config.h"

#include <boost/json.hpp>

#include "codec/json_read.h"
#include "codec/trimmed.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

/// Calls `take` with every line.
template <class Take>
void each_line(std::string_view text, Take take) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    take(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

}  // namespace

Result<DockerConfig> parse_docker_config(std::string_view text) {
  json::parse_options options;
  options.max_depth = 32;
  json::error_code error;
  const auto value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error || !value.is_object())
    return fail(Code::kInvalidArgument, "daemon.json: not a JSON object");
  DockerConfig config;
  config.default_runtime = json_read::text(value, "default-runtime");
  if (const auto* runtimes = json_read::member(value, "runtimes");
      runtimes != nullptr && runtimes->is_object()) {
    for (const auto& entry : runtimes->get_object()) config.runtimes.emplace_back(entry.key());
  }
  if (const auto* cdi = json_read::at(value, "features.cdi"); cdi != nullptr && cdi->is_bool())
    config.cdi = cdi->get_bool();
  return config;
}

std::map<std::string, std::string> toml_settings(std::string_view text) {
  std::map<std::string, std::string> settings;
  each_line(text, [&](std::string_view line) {
    line = trimmed(line);
    const auto equals = line.find('=');
    if (line.empty() || line.front() == '#' || line.front() == '[' ||
        equals == std::string_view::npos)
      return;
    auto value = trimmed(line.substr(equals + 1));
    if (!value.empty() && (value.front() == '"' || value.front() == '\'')) {
      value = value.substr(1, value.find(value.front(), 1) - 1);
    } else if (const auto comment = value.find(" #"); comment != std::string_view::npos) {
      value = trimmed(value.substr(0, comment));
    }
    settings[std::string(trimmed(line.substr(0, equals)))] = value;
  });
  return settings;
}

std::map<std::string, std::string> installed_packages(std::string_view text) {
  std::map<std::string, std::string> packages;
  std::string name;
  bool installed = false;
  each_line(text, [&](std::string_view line) {
    const auto after = [&](std::string_view key) {
      return std::string(trimmed(line.substr(key.size())));
    };
    if (line.starts_with("Package:")) {
      name = after("Package:");
      installed = false;
    } else if (line.starts_with("Status:")) {
      installed = line.find(" installed") != std::string_view::npos;
    } else if (line.starts_with("Version:") && installed && !name.empty()) {
      packages[name] = after("Version:");
    }
  });
  return packages;
}

}  // namespace carve::codec
