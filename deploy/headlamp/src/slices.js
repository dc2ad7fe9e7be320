// The slices of a Pod, a Node or a ResourceClaim, from GPU objects (elasticgpu.io/v1alpha1). Without Headlamp, so that it can
// be tested alone.

export function gib(bytes) {
  return `${Math.floor((bytes / 2 ** 30) * 10) / 10} GiB`;
}

/** Whether the slice of `gpu` belongs to the subject: {kind, uid, name, namespace}. */
function holds(subject, gpu, holder) {
  if (subject.kind === "Node") return gpu.spec.nodeName === subject.name;
  if (holder.owner.uid === subject.uid) return true;
  return subject.kind === "Pod" && (holder.pods ?? []).includes(`${subject.namespace}/${subject.name}`);
}

function nameOf({ owner, pods }) {
  if (pods?.length) return pods.join("+");
  if (!owner.name) return `${owner.kind} ${owner.uid}`;
  return owner.namespace ? `${owner.namespace}/${owner.name}` : owner.name;
}

function stateOf({ state, reason } = {}) {
  return state === "Healthy" ? state : `${state ?? "Unknown"} ${reason ?? ""}`.trim();
}

function computeOf({ cores, coreLimit }) {
  return coreLimit === undefined ? `${cores}` : `${cores} to ${coreLimit}`;
}

/** One row of text per slice, sorted by node and card. */
export function slicesOf(subject, gpus) {
  const sorted = [...gpus].sort((a, b) => a.spec.nodeName.localeCompare(b.spec.nodeName) || a.spec.index - b.spec.index);
  return sorted.flatMap((gpu) =>
    (gpu.status?.holders ?? [])
      .filter((holder) => holds(subject, gpu, holder))
      .map((holder) => ({
        node: gpu.spec.nodeName,
        card: gpu.spec.uuid,
        model: gpu.spec.model ?? "",
        state: stateOf(gpu.status),
        holder: nameOf(holder),
        part: holder.part,
        memory: `${gib(holder.whole ? gpu.spec.memory : holder.memory)} of ${gib(gpu.spec.memory)}`,
        compute: holder.whole ? "whole card" : `${computeOf(holder)} of 100, ${holder.shareClass}`,
        priority: holder.priorityClass,
      })),
  );
}
