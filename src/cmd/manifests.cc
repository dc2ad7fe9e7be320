#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "cmd/cluster_config.h"
#include "cmd/flags.h"
#include "codec/manifest/manifest.h"

// carve lint and carve convert: files in, remarks and text out.
namespace carve::cmd {
namespace {

namespace fs = std::filesystem;
using codec::Remark;

constexpr std::uintmax_t kLargest = 16U << 20U;

struct File {
  std::string name;  // for remarks
  std::string text;
};

bool is_manifest(const fs::path& path) {
  const auto ending = path.extension();
  return ending == ".yaml" || ending == ".yml" || ending == ".json";
}

Result<File> read_stream(std::istream& stream, const std::string& name) {
  File file{name, {}};
  file.text.assign(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad()) return fail(Code::kUnavailable, name + ": cannot be read");
  if (file.text.size() > kLargest)
    return fail(Code::kInvalidArgument, name + ": larger than 16 MiB, the largest manifest that is read");
  return file;
}

Result<File> read_file(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return fail(Code::kNotFound, path.string() + ": no such file or folder");
  const auto size = fs::file_size(path, error);
  if (error) return fail(Code::kInvalidArgument, path.string() + ": not a file");
  if (size > kLargest)
    return fail(Code::kInvalidArgument, path.string() + ": larger than 16 MiB, the largest manifest that is read");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return fail(Code::kPermissionDenied, path.string() + ": cannot be opened");
  return read_stream(stream, path.string());
}

/// The manifests that the words of the command line name, in this order; those of a folder sorted.
Result<std::vector<File>> read_all(const std::vector<std::string>& words) {
  std::vector<File> all;
  for (const auto& word : words) {
    if (word == "-") {
      CARVE_TRY(auto file, read_stream(std::cin, "stdin"));
      all.push_back(std::move(file));
      continue;
    }
    std::error_code error;
    if (!fs::is_directory(word, error)) {
      CARVE_TRY(auto file, read_file(word));
      all.push_back(std::move(file));
      continue;
    }
    std::vector<fs::path> paths;
    for (fs::recursive_directory_iterator at(word, error), end; !error && at != end; at.increment(error)) {
      if (is_manifest(at->path()) && at->is_regular_file(error)) paths.push_back(at->path());
    }
    if (error) return fail(Code::kUnavailable, word + ": cannot be read: " + error.message());
    if (paths.empty()) return fail(Code::kNotFound, word + ": no .yaml, .yml or .json file below this folder");
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
      CARVE_TRY(auto file, read_file(path));
      all.push_back(std::move(file));
    }
  }
  return all;
}

Result<codec::ManifestRules> rules_of(const ManifestOptions& options) {
  codec::ManifestRules rules;
  if (!options.cluster_config.empty()) {
    CARVE_TRY(const auto config, read_cluster_config(options.cluster_config));
    rules.dialects = config.dialects();
  } else {
    rules.dialects = ClusterConfig().dialects();
  }
  if (options.to.empty()) return rules;
  rules.to = codec::spelling_from(options.to);
  if (rules.to) return rules;
  return fail(Code::kInvalidArgument, "--to: \"" + options.to.substr(0, 64) + "\" is not a spelling; legal are " +
                                          std::string(codec::kSpellingWords));
}

struct Counts {
  std::size_t files = 0;
  std::size_t wrong = 0;
  std::size_t repaired = 0;
};

void say(std::FILE* out, const std::string& file, const Remark& remark, const char* repaired) {
  const char* word = remark.kind == Remark::Kind::kWrong      ? "error"
                     : remark.kind == Remark::Kind::kRepaired ? repaired
                                                              : "reads";
  std::fprintf(out, "%s:%zu: %s: %s%s%s\n", file.c_str(), remark.line, word, remark.object.c_str(),
               remark.object.empty() ? "" : ": ", remark.what.c_str());
}

void add_to(Counts* counts, const Remark& remark) {
  counts->wrong += remark.kind == Remark::Kind::kWrong ? 1 : 0;
  counts->repaired += remark.kind == Remark::Kind::kRepaired ? 1 : 0;
}

}  // namespace

int lint(const ManifestOptions& options) {
  const auto rules = rules_of(options);
  if (!rules) return report(rules.error(), kExitUsage);
  const auto files = read_all(options.files);
  if (!files) return report(files.error(), kExitUsage);
  Counts counts;
  for (const auto& file : *files) {
    ++counts.files;
    for (const auto& remark : codec::read_manifest(file.text, *rules).remarks) {
      say(stdout, file.name, remark, "fixable");
      add_to(&counts, remark);
    }
  }
  std::printf("%zu file(s), %zu error(s), %zu fixable by `carve convert`\n", counts.files, counts.wrong,
              counts.repaired);
  return counts.wrong + counts.repaired == 0 ? kExitOk : kExitFailed;
}

int convert(const ManifestOptions& options) {
  const auto rules = rules_of(options);
  if (!rules) return report(rules.error(), kExitUsage);
  const auto files = read_all(options.files);
  if (!files) return report(files.error(), kExitUsage);
  Counts counts;
  for (const auto& file : *files) {
    const auto read = codec::read_manifest(file.text, *rules);
    // Between two files; a file may begin with its own separator.
    if (counts.files++ > 0 && !read.text.starts_with("---")) std::fputs("---\n", stdout);
    std::fwrite(read.text.data(), 1, read.text.size(), stdout);
    if (!read.text.empty() && read.text.back() != '\n') std::fputs("\n", stdout);
    for (const auto& remark : read.remarks) {
      add_to(&counts, remark);
      if (remark.kind != Remark::Kind::kReads) say(stderr, file.name, remark, "changed");
    }
  }
  return counts.wrong == 0 ? kExitOk : kExitFailed;
}

}  // namespace carve::cmd
