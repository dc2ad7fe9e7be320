#include "codec/manifest/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "codec/admission/answer.h"
#include "codec/claims/elastic_objects.h"
#include "codec/dialects/pod_ask_json.h"
#include "codec/dialects/pod_checks.h"
#include "codec/json_read.h"
#include "codec/manifest/manifest_object.h"
#include "codec/placement/placement_text.h"

namespace carve::codec {
namespace manifest {

std::string ManifestObject::kind() const { return json_read::text_of(value.if_contains("kind")); }

std::string ManifestObject::version() const { return json_read::text_of(value.if_contains("apiVersion")); }

std::string ManifestObject::name() const {
  const auto* metadata = value.if_contains("metadata");
  std::string text = metadata == nullptr ? std::string() : json_read::text(*metadata, "name");
  if (text.empty() && metadata != nullptr) text = json_read::text(*metadata, "generateName");
  return text;
}

void ManifestObject::say(Remark::Kind what_kind, const std::string& inner, std::string what) {
  if (what_kind == Remark::Kind::kRepaired) changed = true;
  auto label = kind();
  if (const auto own = name(); !own.empty()) label += " " + own;
  remarks.push_back({what_kind, first + tree.line(pointer + inner), std::move(label), std::move(what)});
}

json::object* object_at(json::object& object, std::string_view member) {
  auto* found = object.if_contains({member.data(), member.size()});
  return found == nullptr ? nullptr : found->if_object();
}

json::object& made_object(json::object& object, std::string_view member) {
  auto* found = object.if_contains(json_read::json_text(member));
  if (found == nullptr) found = &object.emplace(json_read::json_text(member), json::object()).first->value();
  if (!found->is_object()) *found = json::object();
  return found->as_object();
}

std::vector<std::pair<json::object*, std::string>> objects_in(json::object& object, std::string_view member) {
  std::vector<std::pair<json::object*, std::string>> all;
  auto* found = object.if_contains({member.data(), member.size()});
  auto* list = found == nullptr ? nullptr : found->if_array();
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if (auto* one = (*list)[i].if_object()) all.emplace_back(one, fmt::format("/{}/{}", member, i));
  }
  return all;
}

namespace {

/// Depth is bounded by parse_yaml().
void find_templates(json::value& value, const std::string& pointer, std::vector<PodTemplate>* all) {
  if (auto* list = value.if_array()) {
    for (std::size_t i = 0; i < list->size(); ++i) find_templates((*list)[i], fmt::format("{}/{}", pointer, i), all);
  }
  auto* object = value.if_object();
  if (object == nullptr) return;
  auto* spec = object_at(*object, "spec");
  const auto* containers = spec == nullptr ? nullptr : spec->if_contains("containers");
  if (containers != nullptr && containers->is_array()) return all->push_back({*object, pointer});
  for (auto& member : *object)
    find_templates(member.value(), pointer + "/" + pointer_word(std::string(member.key())), all);
}

}  // namespace

std::vector<PodTemplate> templates_of(ManifestObject& object) {
  std::vector<PodTemplate> all;
  auto* spec = object_at(object.value, "spec");
  const auto* containers = spec == nullptr ? nullptr : spec->if_contains("containers");
  if (containers != nullptr && containers->is_array()) return {{object.value, ""}};
  for (auto& member : object.value) find_templates(member.value(), "/" + pointer_word(std::string(member.key())), &all);
  return all;
}

Result<PodAsk> pod_of(const PodTemplate& pod) { return pod_ask_from(json::value(pod.value)); }

}  // namespace manifest

namespace {

namespace json = boost::json;
using manifest::ManifestObject;
using manifest::PodTemplate;

constexpr std::array<std::pair<Spelling, std::string_view>, 3> kSpellings = {
    {{Spelling::kNative, "native"}, {Spelling::kClaim, "claim"}, {Spelling::kDra, "dra"}}};

/// A document of a file.
struct Document {
  std::string_view separator;  // its line "---", with the line's end; empty: none
  std::string_view text;
  std::size_t first = 0;  // lines of the file before `text`
};

std::vector<Document> documents_of(std::string_view text) {
  std::vector<Document> all(1);
  std::size_t line = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const auto end = text.find('\n', at);
    const auto next = end == std::string_view::npos ? text.size() : end + 1;
    const auto here = text.substr(at, next - at);
    const auto rest = here.starts_with("---") ? here.substr(3) : std::string_view("x");
    if (rest.find_first_not_of(" \t\r\n") == std::string_view::npos || rest.starts_with(" #")) {
      all.back().text = text.substr(begin, at - begin);
      all.push_back({here, {}, line + 1});
      begin = next;
    }
    at = next;
  }
  all.back().text = text.substr(begin);
  return all;
}

/// Comments and empty lines before a document's first value.
std::string_view head_of(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto end = text.find('\n', at);
    const auto next = end == std::string_view::npos ? text.size() : end + 1;
    const auto first = text.substr(at, next - at).find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos && text[at + first] != '#') break;
    at = next;
  }
  return text.substr(0, at);
}

void read_container(ManifestObject& object, const PodAsk& pod, const ContainerAsk& container,
                    const std::string& pointer, const DialectSettings& settings, std::vector<PartRequest>* parts) {
  for (const auto& error : unknown_names(container)) object.wrong(pointer, error.what);
  for (const auto& error : unread_names(container, settings)) object.wrong(pointer, error.what);
  PodAsk alone = pod;
  alone.containers = {container};
  const auto read = requests_of(alone, settings);
  if (!read) return object.wrong(pointer, read.error().what);
  for (const auto& part : *read) {
    object.reads(pointer, fmt::format("container {}: {}: {}", part.part, part.request.dialect, to_human(part.request)));
    parts->push_back(part);
  }
}

void read_pod(ManifestObject& object, const PodTemplate& pod, const DialectSettings& settings) {
  const auto ask = manifest::pod_of(pod);
  if (!ask) return object.wrong(pod.pointer, ask.error().what);
  std::vector<PartRequest> parts;
  std::map<std::string, std::string> pointers;
  auto* spec = manifest::object_at(pod.value, "spec");
  for (const char* list : {"initContainers", "containers"}) {
    for (const auto& [container, pointer] : manifest::objects_in(*spec, list))
      pointers[json_read::text(json::value(*container), "name")] = pod.pointer + "/spec" + pointer;
  }
  for (const auto& container : ask->containers)
    read_container(object, *ask, container, pointers[container.name], settings, &parts);
  const std::string annotations = pod.pointer + "/metadata/annotations";
  for (const auto& error : placeholders(*ask)) object.wrong(annotations, error.what);
  const auto uses = claim_uses(*ask, parts);
  for (const auto& error : uses.errors) object.wrong(annotations, error.what);
  for (const auto& use : uses.legal)
    object.reads(annotations, fmt::format("container {}: ElasticGPUClaim {}", use.container, use.claim));
  if (const auto said = placement_of(*ask); !said) object.wrong(annotations, said.error().what);
}

/// Elastic GPU's objects: as control reads them.
void read_elastic(ManifestObject& object, const DialectSettings& settings) {
  if (!object.version().starts_with("elasticgpu.io/")) return;
  json::object stored = object.value;
  if (auto* metadata = manifest::object_at(stored, "metadata")) metadata->emplace("uid", "not created yet");
  const auto text = json::serialize(stored);
  const auto say = [&](const Error* unreadable, const std::string& error) {
    if (unreadable != nullptr) return object.wrong("", unreadable->what);
    if (!error.empty()) object.wrong("", error);
  };
  if (object.kind() == "ElasticGPUClass") {
    const auto made = parse_elastic_class(text);
    say(made ? nullptr : &made.error(), made ? made->error : "");
  } else if (object.kind() == "ElasticGPU") {
    const auto made = parse_elastic_gpu(text, settings);
    say(made ? nullptr : &made.error(), made ? made->error : "");
  } else if (object.kind() == "ElasticGPUClaim") {
    const auto made = parse_elastic_claim(text, settings);
    say(made ? nullptr : &made.error(), made ? made->error : "");
    if (made && made->error.empty())
      object.reads("/spec", fmt::format("class {}: {}", made->class_name, to_human(made->request)));
  }
}

/// One document on its way.
struct Reading {
  YamlTree tree;
  std::size_t first = 0;
  const ManifestRules& rules;
  std::vector<Remark>& remarks;
  bool changed = false;
  std::vector<json::value> before = {};  // new objects, which belong before the document
};

void read_object(Reading& reading, json::object& value, const std::string& pointer) {
  ManifestObject object{value, pointer, reading.tree, reading.first, reading.remarks, reading.changed};
  if (object.kind().empty() || object.version().empty()) return;
  auto* items = value.if_contains("items");
  if (object.kind().ends_with("List") && items != nullptr && items->is_array()) {
    auto& list = items->as_array();
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (auto* item = list[i].if_object()) read_object(reading, *item, fmt::format("{}/items/{}", pointer, i));
    }
    return;
  }
  manifest::repair(object);
  if (reading.rules.to) {
    for (auto& one : manifest::spell(object, reading.rules.dialects, *reading.rules.to))
      reading.before.push_back(std::move(one));
  }
  for (const auto& pod : manifest::templates_of(object)) read_pod(object, pod, reading.rules.dialects);
  read_elastic(object, reading.rules.dialects);
}

std::string text_of(const Reading& reading, const Document& document) {
  std::string text(document.separator);
  if (!reading.changed) return text + std::string(document.text);
  text += head_of(document.text);
  for (const auto& one : reading.before) text += yaml_text(one) + "---\n";
  return text + yaml_text(reading.tree.value);
}

}  // namespace

std::optional<Spelling> spelling_from(std::string_view word) {
  for (const auto& [spelling, name] : kSpellings) {
    if (name == word) return spelling;
  }
  return std::nullopt;
}

ReadManifest read_manifest(std::string_view text, const ManifestRules& rules) {
  ReadManifest read;
  for (const auto& document : documents_of(text)) {
    auto tree = parse_yaml(document.text);
    if (!tree) {
      // The parser counts lines from the document's first one.
      std::size_t line = 1;
      const auto& what = tree.error().what;
      if (what.starts_with("line ")) line = std::strtoul(what.c_str() + 5, nullptr, 10);
      const auto colon = what.find(": ");
      std::string why = what.starts_with("line ") && colon != std::string::npos ? what.substr(colon + 2) : what;
      if (document.text.find("{{") != std::string_view::npos)
        why += "; of a Helm chart, read the output of `helm template`";
      read.remarks.push_back({Remark::Kind::kWrong, document.first + line, "", std::move(why)});
      read.text += std::string(document.separator) + std::string(document.text);
      continue;
    }
    Reading reading{std::move(*tree), document.first, rules, read.remarks};
    for (const auto& pointer : reading.tree.twice) {
      read.remarks.push_back({Remark::Kind::kWrong, document.first + reading.tree.line(pointer), "",
                              fmt::format("{} is set twice; the API server uses the last one or refuses it", pointer)});
    }
    if (auto* object = reading.tree.value.if_object()) {
      read_object(reading, *object, "");
    } else if (!reading.tree.value.is_null()) {
      read.remarks.push_back({Remark::Kind::kWrong, document.first + 1, "", "not a Kubernetes object"});
    }
    read.text += text_of(reading, document);
  }
  std::stable_sort(read.remarks.begin(), read.remarks.end(),
                   [](const Remark& a, const Remark& b) { return a.line < b.line; });
  return read;
}

}  // namespace carve::codec
