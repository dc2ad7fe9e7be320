#include "codec/views/yaml.h"

#include <yaml-cpp/yaml.h>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

void emit(YAML::Emitter* out, const json::value& value) {
  if (const auto* object = value.if_object()) {
    *out << (object->empty() ? YAML::Flow : YAML::Block) << YAML::BeginMap;
    for (const auto& member : *object) {
      *out << YAML::Key << std::string(member.key()) << YAML::Value;
      emit(out, member.value());
    }
    *out << YAML::EndMap;
  } else if (const auto* array = value.if_array()) {
    *out << (array->empty() ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
    for (const auto& item : *array) emit(out, item);
    *out << YAML::EndSeq;
  } else if (const auto* text = value.if_string()) {
    *out << YAML::DoubleQuoted << std::string(text->data(), text->size());
  } else if (value.is_null()) {
    *out << YAML::Null;
  } else {
    *out << json::serialize(value);  // numbers, true and false are written in the same way
  }
}

}  // namespace

Result<std::string> yaml_of_json(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "document"));
  YAML::Emitter out;
  emit(&out, value);
  return std::string(out.c_str()) + "\n";
}

}  // namespace carve::codec
