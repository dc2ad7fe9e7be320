#include "codec/dra/share_config.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxText = 10 * 1024;  // the API server's own limit for opaque parameters

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

std::string shown(const json::value& value) { return json::serialize(value).substr(0, 64); }

template <class E>
std::optional<E> word(std::string_view key, const json::value& value,
                      std::optional<E> (*from)(std::string_view), std::string_view legal,
                      std::vector<std::string>* wrong) {
  const auto* text = value.if_string();
  const auto got = text == nullptr ? std::nullopt : from(view(*text));
  if (!got) wrong->push_back(fmt::format("{}: {} is not a class; legal: {}", key, shown(value), legal));
  return got;
}

}  // namespace

Result<ShareConfig> parse_share_config(std::string_view text) {
  if (text.size() > kMaxText)
    return fail(Code::kInvalidArgument,
                fmt::format("ShareConfig: {} bytes; legal: at most {}", text.size(), kMaxText));
  json::parse_options options;
  options.max_depth = 4;
  json::error_code error;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return fail(Code::kInvalidArgument, "ShareConfig: not JSON: " + error.message());
  const auto* object = value.if_object();
  if (object == nullptr) return fail(Code::kInvalidArgument, "ShareConfig: not a JSON object");
  const auto* version = object->if_contains("apiVersion");
  if (version == nullptr || !version->is_string() || view(version->get_string()) != kShareConfigVersion) {
    return fail(Code::kUnimplemented,
                fmt::format("apiVersion: {} is unknown; this agent reads \"{}\"",
                            version == nullptr ? "none" : shown(*version), kShareConfigVersion));
  }
  ShareConfig config;
  std::vector<std::string> wrong;
  bool kind = false;
  for (const auto& item : *object) {
    const std::string_view key(item.key().data(), item.key().size());
    if (key == "kind") {
      kind = item.value().is_string() && view(item.value().get_string()) == kShareConfigKind;
    } else if (key == "shareClass") {
      config.share = word(key, item.value(), share_class_from, kShareClassWords, &wrong);
    } else if (key == "priorityClass") {
      config.priority = word(key, item.value(), priority_class_from, kPriorityClassWords, &wrong);
    } else if (key == "coreLimit") {
      const auto* limit = item.value().if_int64();
      if (limit != nullptr && *limit >= 1 && *limit <= 100) {
        config.core_limit = CoreShare(static_cast<std::uint32_t>(*limit));
      } else {
        wrong.push_back(fmt::format("coreLimit: {} is not a whole number from 1 to 100 (hundredths of a device)",
                                    shown(item.value())));
      }
    } else if (key != "apiVersion") {
      wrong.push_back(
          fmt::format("{}: unknown member; legal: shareClass, coreLimit and priorityClass", key.substr(0, 64)));
    }
  }
  if (!kind) wrong.insert(wrong.begin(), fmt::format("kind: must be \"{}\"", kShareConfigKind));
  if (wrong.empty()) return config;
  return fail(Code::kInvalidArgument, fmt::format("ShareConfig: {}", fmt::join(wrong, "; ")));
}

}  // namespace carve::codec
