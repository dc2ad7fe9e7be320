#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/manifest/manifest.h"
#include "codec/manifest/yaml_tree.h"

// What the .cc files of this folder share.
namespace carve::codec::manifest {

namespace json = boost::json;

/// A Kubernetes object in a document.
struct ManifestObject {
  json::object& value;
  std::string pointer;  // of the object in its document
  const YamlTree& tree;
  std::size_t first;  // the line before the document in its file
  std::vector<Remark>& remarks;
  bool& changed;

  [[nodiscard]] std::string kind() const;
  [[nodiscard]] std::string version() const;
  [[nodiscard]] std::string name() const;
  /// A remark about the value at `inner`, a JSON pointer below the object. kRepaired means that the value was changed.
  void say(Remark::Kind kind, const std::string& inner, std::string what);
  void wrong(const std::string& inner, std::string what) { say(Remark::Kind::kWrong, inner, std::move(what)); }
  void repaired(const std::string& inner, std::string what) { say(Remark::Kind::kRepaired, inner, std::move(what)); }
  void reads(const std::string& inner, std::string what) { say(Remark::Kind::kReads, inner, std::move(what)); }
};

/// A pod, or the template of pods, in an object: whatever has spec.containers.
struct PodTemplate {
  json::object& value;
  std::string pointer;  // below its object
};
[[nodiscard]] std::vector<PodTemplate> templates_of(ManifestObject& object);

/// The member, if it is an object.
[[nodiscard]] json::object* object_at(json::object& object, std::string_view member);
/// The member; an empty object is added if there is none. Adding a member moves the others: references to them end.
[[nodiscard]] json::object& made_object(json::object& object, std::string_view member);
/// The members of the array `member`, if they are objects, with their JSON pointers.
[[nodiscard]] std::vector<std::pair<json::object*, std::string>> objects_in(json::object& object,
                                                                            std::string_view member);

/// Repairs what is wrong with the object, whatever it is for.
void repair(ManifestObject& object);

/// The pod as admission reads it.
[[nodiscard]] Result<PodAsk> pod_of(const PodTemplate& pod);

/// Rewrites the requests of the object's pods. Returns the objects that the new spelling needs, which belong before it.
[[nodiscard]] std::vector<json::value> spell(ManifestObject& object, const DialectSettings& settings, Spelling to);

}  // namespace carve::codec::manifest
