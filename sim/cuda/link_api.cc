#include <fstream>
#include <iterator>
#include <string>

#include "sim/cuda/driver.h"
#include "sim/cuda/image.h"

// cuLink*: joins images into one that cuModuleLoadData accepts. There is no machine code to link: PTX texts are
// concatenated, and any other single image is returned unchanged. Several binary images together are refused.
namespace carve::sim::cu {

struct LinkState {
  std::uint32_t magic;
  std::string ptx;
  std::string binary;
  unsigned binaries = 0;
};
using CUlinkState = LinkState*;

namespace {

constexpr std::uint32_t kLinkMagic = 0xC0DE0009;
constexpr int kInputPtx = 1, kInputLast = 5;

LinkState* checked(CUlinkState s) { return s != nullptr && s->magic == kLinkMagic ? s : nullptr; }

CUresult add(CUlinkState handle, int type, const void* data, std::size_t size) {
  CU_NEED_INIT();
  LinkState* state = checked(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || size == 0 || type < 0 || type > kInputLast)
    return CUDA_ERROR_INVALID_VALUE;
  std::string bytes(static_cast<const char*>(data), size);
  bytes.append(16, '\0');  // the image reader stops at a NUL
  Image image;
  switch (read_image(bytes.data(), &image)) {
    case ImageError::kNotAnImage:
      return CUDA_ERROR_INVALID_IMAGE;
    case ImageError::kBadPtx:
      return CUDA_ERROR_INVALID_PTX;
    case ImageError::kNone:
      break;
  }
  if (type == kInputPtx) {
    state->ptx += bytes.c_str();
    state->ptx += '\n';
    return CUDA_SUCCESS;
  }
  state->binary = std::move(bytes);
  ++state->binaries;
  return CUDA_SUCCESS;
}

CUresult add_file(CUlinkState handle, int type, const char* path) {
  CU_NEED_INIT();
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return add(handle, type, bytes.data(), bytes.size());
}

CUresult create(CUlinkState* out) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = new LinkState{kLinkMagic, {}, {}};
  return CUDA_SUCCESS;
}

}  // namespace

CU_EXPORT CUresult cuLinkCreate(unsigned, int*, void**, CUlinkState* out) { return create(out); }
CU_EXPORT CUresult cuLinkCreate_v2(unsigned, int*, void**, CUlinkState* out) { return create(out); }

CU_EXPORT CUresult cuLinkAddData(CUlinkState s, int type, void* data, std::size_t size, const char*,
                                 unsigned, int*, void**) {
  return add(s, type, data, size);
}
CU_EXPORT CUresult cuLinkAddData_v2(CUlinkState s, int type, void* data, std::size_t size,
                                    const char*, unsigned, int*, void**) {
  return add(s, type, data, size);
}
CU_EXPORT CUresult cuLinkAddFile(CUlinkState s, int type, const char* path, unsigned, int*,
                                 void**) {
  return add_file(s, type, path);
}
CU_EXPORT CUresult cuLinkAddFile_v2(CUlinkState s, int type, const char* path, unsigned, int*,
                                    void**) {
  return add_file(s, type, path);
}

CU_EXPORT CUresult cuLinkComplete(CUlinkState handle, void** image, std::size_t* size) {
  CU_NEED_INIT();
  LinkState* state = checked(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (state->binaries + (state->ptx.empty() ? 0 : 1) != 1) {
    return state->binaries == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  }
  std::string& whole = state->ptx.empty() ? state->binary : state->ptx;
  *image = whole.data();  // owned by the link state until it is destroyed
  if (size != nullptr) *size = whole.size();
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuLinkDestroy(CUlinkState handle) {
  CU_NEED_INIT();
  LinkState* state = checked(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  state->magic = 0;
  delete state;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
