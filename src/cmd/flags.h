#pragma once

#include <string>

#include "cmd/options.h"

namespace CLI {
class App;
}

// What the command line says. flags.cc defines every command and every flag; no other file parses words.
namespace carve::cmd {

/// The options of all commands. The command that was given has its own set.
struct Everything {
  UpOptions up;
  DownOptions down;
  RunOptions run;
  SliceOptions create, remove, list;
  ViewOptions inspect, top, doctor, version;
  ClusterOptions cluster, explain, top_of, doctor_of;
  DashboardOptions dashboard;
  TimelineOptions timeline;
  ReportOptions report;
  ControlOptions control;
  ProbeOptions probe;
  KeepFilesOptions keep_files;
  ManifestOptions manifests;
  HostOptions agent, arbiter;
  NodeOptions node;
  std::string arbiter_trace;
  std::string worker_root;
  std::string worker_host;
  bool standalone = false;
  std::string shell;
  std::string dialects_as = "table";
};

/// Adds all commands with their flags and help texts.
void add_commands(CLI::App& app, Everything& all);

}  // namespace carve::cmd
