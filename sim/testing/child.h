#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>

#include "sim/testing/instance.h"

// Driver tests run each body in its own process: an initialised driver cannot be reset, and a child of an initialised
// process cannot use it.
namespace carve::sim {

using Ptr = unsigned long long;

/// Calls an entry point of this process's libcuda.so.1. The arguments must have the exact widths of the parameters.
template <class... A>
int cu(const char* name, A... arguments) {
  static void* library = dlopen((Instance::library_folder() + "/libcuda.so.1").c_str(), RTLD_NOW);
  auto* function = reinterpret_cast<int (*)(A...)>(dlsym(library, name));
  if (function == nullptr) return -1;
  return function(arguments...);
}

/// Starts a process that runs `body`. Its exit code is 1 when an expectation failed in it.
inline pid_t start_child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  body();
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

/// Its exit code, or 128 + signal. −1: start_child() failed.
inline int wait_child(pid_t pid) {
  if (pid < 0) return -1;
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline void in_child(const std::function<void()>& body) {
  EXPECT_EQ(wait_child(start_child(body)), 0);
}

/// Calls cuInit and makes the card's primary context current.
inline void use_card(int ordinal = 0) {
  void* context = nullptr;
  ASSERT_EQ(cu("cuInit", 0U), 0);
  ASSERT_EQ(cu("cuDevicePrimaryCtxRetain", &context, ordinal), 0);
  ASSERT_EQ(cu("cuCtxSetCurrent", context), 0);
}

/// A kernel of the given name, loaded from PTX with its entry.
inline void* kernel(const std::string& name, const std::string& parameters = "") {
  void* module = nullptr;
  void* function = nullptr;
  const std::string ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " + name +
                          "(" + parameters + ")\n{\n ret;\n}\n";
  EXPECT_EQ(cu("cuModuleLoadData", &module, ptx.c_str()), 0);
  EXPECT_EQ(cu("cuModuleGetFunction", &function, module, name.c_str()), 0);
  return function;
}

inline int launch(void* function, void* stream, void** parameters = nullptr, unsigned blocks = 1) {
  return cu("cuLaunchKernel", function, blocks, 1U, 1U, 256U, 1U, 1U, 0U, stream, parameters,
            static_cast<void**>(nullptr));
}

}  // namespace carve::sim
