#include "sim/cuda/graph.h"

// Objects of the program that graphs keep alive.
namespace carve::sim::cu {

struct UserObject {
  std::atomic<unsigned> count{1};
  CUhostFn destroy = nullptr;
  void* data = nullptr;
};

void retain_object(UserObject* object, unsigned count) { object->count.fetch_add(count); }

void release_object(UserObject* object, unsigned count) {
  if (object->count.fetch_sub(count) != count) return;
  object->destroy(object->data);
  delete object;
}

CU_EXPORT CUresult cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy,
                                      unsigned count, unsigned flags) {
  CU_NEED_INIT();
  // The only flag means that the destructor does not synchronise. The caller must pass it.
  if (out == nullptr || destroy == nullptr || count == 0 || flags != 1)
    return CUDA_ERROR_INVALID_VALUE;
  auto* object = new UserObject();
  object->count = count;
  object->destroy = destroy;
  object->data = data;
  *out = object;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  CU_NEED_INIT();
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  retain_object(object, count);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  CU_NEED_INIT();
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  release_object(object, count);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned count,
                                           unsigned flags) {
  CU_NEED_INIT();
  Graph* graph = checked_graph(handle);
  if (graph == nullptr || object == nullptr || count == 0 || flags > 1)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == 0) retain_object(object, count);  // 1: the caller's references move to the graph
  graph->objects.emplace_back(object, count);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned count) {
  CU_NEED_INIT();
  Graph* graph = checked_graph(handle);
  if (graph == nullptr || object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = graph->objects.begin(); it != graph->objects.end(); ++it) {
    if (it->first != object || it->second < count) continue;
    it->second -= count;
    if (it->second == 0) graph->objects.erase(it);
    release_object(object, count);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace carve::sim::cu
