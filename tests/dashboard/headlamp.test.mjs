// The rows of the Headlamp plug-in (deploy/headlamp/src/slices.js). Run by headlamp_rows.py.
import assert from "node:assert/strict";
import test from "node:test";
import { slicesOf } from "../../deploy/headlamp/src/slices.js";

const GIB = 2 ** 30;
const pod = (uid, name) => ({
  owner: { kind: "pod", uid, namespace: "ml", name }, part: "main", memory: 4 * GIB, cores: 30, whole: false,
  shareClass: "burst", priorityClass: "standard", pods: [`ml/${name}`],
});
const claim = { ...pod("u-claim", "claim"), owner: { kind: "claim", uid: "u-claim", namespace: "ml", name: "c" }, pods: ["ml/b"] };
const gpu = (node, index, holders, status = {}) => ({
  metadata: { name: `${node}.${index}` },
  spec: { nodeName: node, index, uuid: `GPU-${node}-${index}`, model: "H200", memory: 141 * GIB },
  status: { state: "Healthy", holders, ...status },
});
const GPUS = [gpu("n2", 0, [pod("u-b", "b")]), gpu("n1", 1, [claim]), gpu("n1", 0, [pod("u-a", "a")])];

test("a node shows all slices of its cards, in their order", () => {
  const rows = slicesOf({ kind: "Node", uid: "x", name: "n1" }, GPUS);
  assert.deepEqual(rows.map((row) => [row.card, row.holder]), [["GPU-n1-0", "ml/a"], ["GPU-n1-1", "ml/b"]]);
});

test("a pod shows its own slices and those of its claims", () => {
  const rows = slicesOf({ kind: "Pod", uid: "u-b", name: "b", namespace: "ml" }, GPUS);
  assert.deepEqual(rows.map((row) => row.card), ["GPU-n1-1", "GPU-n2-0"]);
  assert.equal(rows[0].memory, "4 GiB of 141 GiB");
  assert.equal(rows[0].compute, "30 of 100, burst");
});

test("a pod of the same name in another namespace shows nothing", () => {
  assert.deepEqual(slicesOf({ kind: "Pod", uid: "u-x", name: "b", namespace: "web" }, GPUS), []);
});

test("a claim shows its slices", () => {
  assert.deepEqual(slicesOf({ kind: "ResourceClaim", uid: "u-claim", name: "c", namespace: "ml" }, GPUS).map((row) => row.card), ["GPU-n1-1"]);
});

test("a whole card, an unhealthy card, and a card without a status", () => {
  const whole = { ...pod("u", "a"), whole: true };
  const sick = gpu("n1", 0, [whole], { state: "Unhealthy", reason: "XID 79" });
  const [row] = slicesOf({ kind: "Node", uid: "x", name: "n1" }, [sick]);
  assert.equal(row.memory, "141 GiB of 141 GiB");
  assert.equal(row.compute, "whole card");
  assert.equal(row.state, "Unhealthy XID 79");
  assert.deepEqual(slicesOf({ kind: "Node", uid: "x", name: "n1" }, [{ ...sick, status: undefined }]), []);
});
