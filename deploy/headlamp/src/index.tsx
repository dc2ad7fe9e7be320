// The section "GPU slices" on the pages of Pods, Nodes and ResourceClaims.
import { ApiProxy, registerDetailsViewSection } from '@kinvolk/headlamp-plugin/lib';
import { SectionBox, SimpleTable } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { useEffect, useState } from 'react';
import { slicesOf } from './slices.js';

const KINDS = ['Pod', 'Node', 'ResourceClaim'];
const EVERY_MS = 10_000;

type Row = Record<string, string>;

interface Resource {
  kind: string;
  metadata: { uid: string; name: string; namespace?: string };
}

function Slices({ resource }: { resource: Resource }) {
  const [rows, setRows] = useState<Row[]>([]);
  const [error, setError] = useState('');
  const { kind } = resource;
  const { uid, name, namespace } = resource.metadata;
  useEffect(() => {
    let open = true;
    const load = () =>
      ApiProxy.request('/apis/elasticgpu.io/v1alpha1/gpus').then(
        (list: any) => {
          if (!open) return;
          setRows(slicesOf({ kind, uid, name, namespace }, list.items));
          setError('');
        },
        (reason: Error) => open && setError(reason.message)
      );
    load();
    const timer = setInterval(load, EVERY_MS);
    return () => {
      open = false;
      clearInterval(timer);
    };
  }, [kind, uid, name, namespace]);
  if (error) return <SectionBox title="GPU slices">The GPU objects cannot be read: {error}</SectionBox>;
  if (rows.length === 0) return null;
  return (
    <SectionBox title="GPU slices">
      <SimpleTable
        data={rows}
        columns={[
          { label: 'Node', getter: (row: Row) => row.node },
          { label: 'Card', getter: (row: Row) => `${row.model} ${row.card}` },
          { label: 'State', getter: (row: Row) => row.state },
          { label: 'Held by', getter: (row: Row) => row.holder },
          { label: 'Part', getter: (row: Row) => row.part },
          { label: 'Memory', getter: (row: Row) => row.memory },
          { label: 'Compute', getter: (row: Row) => row.compute },
          { label: 'Priority', getter: (row: Row) => row.priority },
        ]}
      />
    </SectionBox>
  );
}

registerDetailsViewSection(({ resource }: { resource: any }) =>
  resource && KINDS.includes(resource.kind) ? <Slices resource={resource} /> : null
);
