#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "app/cli/dialects.h"
#include "cmd/arbiter_main.h"
#include "cmd/completion.h"
#include "cmd/config.h"
#include "cmd/flags.h"

// The main binary: it parses the command line (flags.h) and runs the command.
namespace carve::cmd {
namespace {

void collect(const CLI::App* app, const std::string& path, std::vector<CompletionNode>* nodes) {
  CompletionNode node{path, {}};
  for (const auto* sub : app->get_subcommands(nullptr)) {
    // Commands that other programs start are not suggested, but their flags are completed.
    const bool service = path.empty() && (sub->get_name() == "agent" || sub->get_name() == "arbiter" ||
                                          sub->get_name() == "control" || sub->get_name() == "keep-files" ||
                                          sub->get_name() == "nvml-worker");
    if (!service) node.words.push_back(sub->get_name());
    collect(sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), nodes);
  }
  for (const auto* option : app->get_options()) {
    for (const auto& name : option->get_lnames()) node.words.push_back("--" + name);
  }
  nodes->push_back(std::move(node));
}

/// Reads the configuration into the options of the command that was given.
Result<void> apply_config(const CLI::App* used, HostOptions* host) {
  std::vector<std::string> set;
  for (const auto* option : used->get_options()) {
    if (option->count() > 0 && !option->get_lnames().empty()) set.push_back(option->get_lnames().front());
  }
  if (host->config.empty() && ::access(kUsualConfig, R_OK) == 0) return read_config(kUsualConfig, set, host);
  if (host->config.empty()) return {};
  return read_config(host->config, set, host);
}

int inspect_here_or_there(Everything& all) {
  if (all.cluster.details && all.cluster.output != "gpushare")
    return report({Code::kInvalidArgument, "inspect: --details needs -o gpushare"}, kExitUsage);
  if (all.cluster.of_cluster()) return inspect_cluster(all.cluster);
  if (!all.cluster.name.empty())
    return report({Code::kInvalidArgument, "inspect: NODE needs --cluster"}, kExitUsage);
  if (all.cluster.output != "text" && all.cluster.output != "json" && all.cluster.output != "yaml") {
    return report({Code::kInvalidArgument, "inspect: -o " + all.cluster.output + " needs --cluster"}, kExitUsage);
  }
  all.inspect.output = all.cluster.output;
  all.inspect.watch = all.cluster.watch;
  return inspect(all.inspect);
}

int top_here_or_there(Everything& all) {
  if (all.top_of.of_cluster()) return top_cluster(all.top_of, all.top);
  if (!all.top_of.name.empty())
    return report({Code::kInvalidArgument, "top: NODE needs --cluster"}, kExitUsage);
  return top(all.top);
}

int doctor_here_or_there(Everything& all) {
  if (!all.doctor_of.of_cluster()) return doctor(all.doctor);
  if (all.doctor.node)
    return report({Code::kInvalidArgument, "doctor: --node (this host) and --cluster exclude each other"},
                  kExitUsage);
  all.doctor_of.output = all.doctor.output;
  return doctor_cluster(all.doctor_of);
}

int dispatch(const std::string& name, CLI::App* used, CLI::App& app, Everything& all) {
  struct Row {
    const char* name;
    HostOptions* host;
    std::function<int()> run;
    bool serves = false;  // it runs by the configuration, so it does not start with a mistake in it
  };
  const Row rows[] = {
      {"up", &all.up.host, [&] { return run_up(all.up); }, true},
      {"down", &all.down.host, [&] { return all.down.node.empty() ? run_down(all.down) : run_node_down(all.down); }},
      {"agent", &all.agent, [&] { return run_agent(all.agent, all.node); }, true},
      {"arbiter", &all.arbiter, [&] { return run_arbiter(all.arbiter, all.arbiter_trace); }, true},
      {"run", &all.run.host, [&] { return run_command(all.run); }},
      {"create", &all.create.host, [&] { return slice_create(all.create); }},
      {"delete", &all.remove.host, [&] { return slice_delete(all.remove); }},
      {"list", &all.list.host, [&] { return slice_list(all.list); }},
      {"inspect", &all.inspect.host, [&] { return inspect_here_or_there(all); }},
      {"top", &all.top.host, [&] { return top_here_or_there(all); }},
      {"timeline", &all.timeline.host, [&] { return timeline(all.timeline); }},
      {"report", &all.report.host, [&] { return write_report(all.report); }},
      {"dashboard", &all.dashboard.host, [&] { return run_dashboard(all.dashboard); }},
      {"doctor", &all.doctor.host, [&] { return doctor_here_or_there(all); }},
      {"probe", &all.probe.host, [&] { return probe(all.probe); }},
      {"version", &all.version.host, [&] { return version(all.version); }},
  };
  if (name == "explain") return explain_pod(all.explain);
  if (name == "lint") return lint(all.manifests);
  if (name == "convert") return convert(all.manifests);
  if (name == "control") return run_control(all.control);
  if (name == "keep-files") return run_keep_files(all.keep_files);
  if (name == "nvml-worker") return run_worker(all.worker_root, all.worker_host);
  if (name == "dialects") {
    std::printf("%s", cli::render_dialects(all.dialects_as).c_str());
    return kExitOk;
  }
  if (name == "completion") {
    std::vector<CompletionNode> nodes;
    collect(&app, "", &nodes);
    std::printf("%s", completion_script(all.shell, nodes).c_str());
    return kExitOk;
  }
  for (const auto& row : rows) {
    if (name != row.name) continue;
    if (auto applied = apply_config(used, row.host); !applied) {
      // The other commands use only its folders. A mistake elsewhere must not fail a pod's probe.
      if (row.serves || applied.error().code != Code::kInvalidArgument) return report(applied.error(), kExitUsage);
      std::fprintf(stderr, "carve: warning: %s\n", applied.error().what.c_str());
    }
    if (auto checked = check_folders(*row.host); !checked) return report(checked.error(), kExitUsage);
    return row.run();
  }
  return kExitUsage;
}

/// An error about the first word that is in a command's place and is not a command. CLI11 would only report that a
/// command is missing.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* level = &app;
  for (int i = 1; i < argc && level->get_subcommands(nullptr).size() > 0; ++i) {
    const std::string word = argv[i];
    if (word.empty() || word.front() == '-') return {};
    const auto subs = level->get_subcommands(nullptr);
    const auto found =
        std::find_if(subs.begin(), subs.end(), [&](const CLI::App* s) { return s->check_name(word); });
    if (found == subs.end()) {
      std::string legal;
      for (const auto* sub : subs) legal += (legal.empty() ? "" : ", ") + sub->get_name();
      return "\"" + word + "\" is not a command; legal are " + legal;
    }
    level = *found;
  }
  return {};
}

int usage_error(const std::string& text) {
  std::fprintf(stderr, "carve: %s\n", text.c_str());
  return kExitUsage;
}

/// A link to this program may have the name of a kubectl plug-in: `kubectl carve …` is `carve … --cluster`, and
/// `kubectl inspect gpushare …` prints what gpushare's plug-in prints. kubectl_complete-carve completes `kubectl
/// carve`.
std::vector<std::string> words_of(int argc, char** argv, bool* of_kubectl, bool* completes) {
  std::vector<std::string> words(argv, argv + argc);
  const std::string called = words.empty() ? "" : words.front().substr(words.front().rfind('/') + 1);
  const bool gpushare = called == "kubectl-inspect-gpushare";
  if (gpushare) words.insert(words.begin() + 1, {"inspect", "--output=gpushare"});
  *completes = called == "kubectl_complete-carve";
  *of_kubectl = gpushare || called == "kubectl-carve" || *completes;
  return words;
}

}  // namespace

int carve_main(int argc_given, char** argv_given) {
  bool of_kubectl = false;
  bool completes = false;
  auto words = words_of(argc_given, argv_given, &of_kubectl, &completes);
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  char** const argv = pointers.data();
  const int argc = static_cast<int>(pointers.size());
  CLI::App app("Carve cuts GPUs into fractions and makes the fractions real.", of_kubectl ? "kubectl carve" : "carve");
  app.require_subcommand(1);
  app.footer(
      "Start here:\n  carve up --simulate h200x2                       (on real cards: carve up)\n"
      "  carve run --memory 4Gi --cores 30 -- python train.py\n  carve top");
  Everything all;
  all.cluster.wanted = all.top_of.wanted = all.doctor_of.wanted = all.dashboard.of.wanted = of_kubectl;
  all.timeline.of.wanted = all.report.of.wanted = of_kubectl;
  add_commands(app, all);
  if (completes) {
    std::vector<CompletionNode> nodes;
    collect(&app, "", &nodes);
    std::printf("%s", plugin_completions(nodes, {argv + 1, argv + argc}).c_str());
    return kExitOk;
  }
  // The words after the first -- are the command. carve does not parse flags among them.
  int ours = argc;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--") continue;
    ours = i;
    all.run.command.assign(argv + i + 1, argv + argc);
    break;
  }
  if (const auto unknown = unknown_command(app, ours, argv); !unknown.empty()) return usage_error(unknown);
  try {
    app.parse(ours, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return usage_error(std::string(error.what()) + " (--help shows what is legal)");
  }
  CLI::App* used = app.get_subcommands().front();
  if (used->get_name() == "slice") used = used->get_subcommands().front();
  const std::string name = used->get_name();
  if (name == "run" && all.run.command.empty())
    return usage_error("run: no command; it follows --, as in: carve run --memory 4Gi --cores 30 -- python train.py");
  if (name != "run" && ours != argc) return usage_error(name + ": takes no command after --");
  return dispatch(name, used, app, all);
}

}  // namespace carve::cmd

int main(int argc, char** argv) { return carve::cmd::after_output(carve::cmd::carve_main(argc, argv)); }
